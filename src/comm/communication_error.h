// The failure of a communication call.
#pragma once

#include <stdexcept>
#include <string>

#include "core/status.h"

namespace jaxmg {

// Thrown by calls and waits of a communicator whose ranks cannot go on together: one of them left
// or gave up (Kind::communication), or they made different calls (Kind::mismatched_calls). After
// the first such error every later call on any rank fails with it too.
class CommunicationError : public std::runtime_error {
 public:
  explicit CommunicationError(const std::string& what, Kind kind = Kind::communication)
      : std::runtime_error(what), kind_(kind) {}

  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

}  // namespace jaxmg
