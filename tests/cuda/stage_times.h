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

}  // namespace jaxmg::test
