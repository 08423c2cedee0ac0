// How a rank's part of a call ended: what is handed to jaxmg_call::complete.
#pragma once

#include <exception>
#include <span>
#include <stdexcept>
#include <string>

#include "ffi/call.h"

namespace jaxmg {

struct Outcome {
  jaxmg_code code = JAXMG_OK;
  std::string message;
  // A peer failed first; this rank only felt it.
  bool secondary = false;

  bool ok() const { return code == JAXMG_OK; }
};

// Not enough memory for the scratch of a call.
class ScratchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What an engine does not do, on any rank.
class UnimplementedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The outcome that belongs to the exception in flight, called from a catch block.
Outcome outcome_of_current_exception();

// What all ranks report: the lowest rank's own failure if one has one, else a felt one, else
// success.
Outcome agreed(std::span<const Outcome> outcomes);

}  // namespace jaxmg
