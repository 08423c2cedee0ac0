// Where the time of a rank program goes on a GPU, by the stages that it tells its observer.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "algo/rank.h"
#include "tile/cuda/lane.h"

namespace jaxmg::test {

class StageTimes final : public Observer {
 public:
  // Of the work in `lane`, which must outlive this.
  explicit StageTimes(tile::CudaLane& lane) : lane_(lane) {}
  ~StageTimes() override {
    for (const Mark& mark : marks_) {
      cudaEventDestroy(mark.event);
    }
  }
  StageTimes(const StageTimes&) = delete;
  StageTimes& operator=(const StageTimes&) = delete;

  void stage(int, const char* name) override {
    Mark mark{name, nullptr};
    JAXMG_CUDA_CHECK(cudaEventCreate(&mark.event));
    JAXMG_CUDA_CHECK(cudaEventRecord(mark.event, lane_.stream()));
    marks_.push_back(mark);
  }

  // Milliseconds of each stage, in the order in which they first came.
  void print(const std::string& title) {
    stage(0, "");
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane_.stream()));
    std::vector<std::pair<std::string, double>> sums;
    for (std::size_t i = 0; i + 1 < marks_.size(); ++i) {
      float took = 0;
      JAXMG_CUDA_CHECK(cudaEventElapsedTime(&took, marks_[i].event, marks_[i + 1].event));
      auto place =
          std::ranges::find_if(sums, [&](const auto& s) { return s.first == marks_[i].name; });
      if (place == sums.end()) {
        place = sums.insert(sums.end(), {marks_[i].name, 0.0});
      }
      place->second += static_cast<double>(took);
    }
    std::printf("%s ms:", title.c_str());
    for (const auto& [name, sum] : sums) {
      std::printf(" | %s %.2f", name.c_str(), sum);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  struct Mark {
    std::string name;
    cudaEvent_t event;
  };

  tile::CudaLane& lane_;
  std::vector<Mark> marks_;
};

// The same by tasks, each in the lane that it belongs to; they overlap.
class TaskTimes final : public Observer {
 public:
  explicit TaskTimes(tile::CudaLanes& lanes) : lanes_(lanes) {}
  ~TaskTimes() override {
    for (const Mark& mark : marks_) {
      cudaEventDestroy(mark.begin);
      cudaEventDestroy(mark.end);
    }
  }
  TaskTimes(const TaskTimes&) = delete;
  TaskTimes& operator=(const TaskTimes&) = delete;

  void begin(int, Task task, Size step, Size) override {
    marks_.push_back({task, step, record(task), nullptr});
  }
  void end(int, Task task, Size, Size) override { marks_.back().end = record(task); }

  // Milliseconds, in sum and in the middle of the run.
  void print(const std::string& title) {
    JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
    std::printf("%s ms:", title.c_str());
    for (const auto& [task, name] : {std::pair{Task::panel, "panels"},
                                     {Task::look_ahead, "look-ahead"},
                                     {Task::update, "updates"}}) {
      std::vector<double> times;
      for (const Mark& mark : marks_) {
        if (mark.task == task) {
          float took = 0;
          JAXMG_CUDA_CHECK(cudaEventElapsedTime(&took, mark.begin, mark.end));
          times.push_back(static_cast<double>(took));
        }
      }
      double sum = 0;
      for (const double x : times) {
        sum += x;
      }
      const std::size_t count = times.size();
      std::printf(" | %s %.2f", name, sum);
      for (const std::size_t part : {1, 4, 8, 12}) {
        std::printf("%s%.3f", part == 1 ? " (at 1/16, 4/16, 8/16, 12/16: " : ", ",
                    count > 0 ? times[count * part / 16] : 0.0);
      }
      std::printf(")");
    }
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  struct Mark {
    Task task;
    Size step;
    cudaEvent_t begin;
    cudaEvent_t end;
  };

  cudaEvent_t record(Task task) const {
    const bool of_panel = task == Task::panel || task == Task::look_ahead;
    cudaEvent_t event = nullptr;
    JAXMG_CUDA_CHECK(cudaEventCreate(&event));
    JAXMG_CUDA_CHECK(cudaEventRecord(event, (of_panel ? lanes_.panel : lanes_.update).stream()));
    return event;
  }

  tile::CudaLanes& lanes_;
  std::vector<Mark> marks_;
};

}  // namespace jaxmg::test
