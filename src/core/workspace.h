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

 private:
  const Plan* plan_;
  std::byte* base_;
};

}  // namespace jaxmg
