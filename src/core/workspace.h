// A plan's scratch, cut from one block.
#pragma once

#include <cstddef>
#include <stdexcept>

#include "core/plan.h"

namespace jaxmg {

class Workspace {
 public:
  // base points to plan.scratch_bytes() bytes; both must outlive the workspace.
  Workspace(const Plan& plan, void* base) : plan_(&plan), base_(static_cast<std::byte*>(base)) {}

  template <class T>
  T* get(Buffer buffer) const {
    const Entry e = plan_->entry(buffer);
    if (e.count > 0 && (e.place != Place::scratch || e.type != dtype_of<T>)) {
      throw std::logic_error("workspace: wrong place or type asked for");
    }
    return e.count > 0 ? reinterpret_cast<T*>(base_ + e.offset) : nullptr;
  }
  Size count(Buffer buffer) const { return plan_->entry(buffer).count; }
  // The same memory for another type, and how many of them there is room for.
  template <class T>
  T* get_as(Buffer buffer) const {
    const Entry e = plan_->entry(buffer);
    return count_as<T>(buffer) > 0 ? reinterpret_cast<T*>(base_ + e.offset) : nullptr;
  }
  template <class T>
  Size count_as(Buffer buffer) const {
    const Entry e = plan_->entry(buffer);
    return e.place == Place::scratch ? e.bytes() / static_cast<Size>(sizeof(T)) : 0;
  }

 private:
  const Plan* plan_;
  std::byte* base_;
};

}  // namespace jaxmg
