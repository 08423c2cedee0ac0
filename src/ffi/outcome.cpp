#include "ffi/outcome.h"

#include <new>

#include "comm/communication_error.h"
#include "vendor/library.h"

namespace jaxmg {

Outcome outcome_of_current_exception() {
  try {
    throw;
  } catch (const CommunicationError& e) {
    const bool mismatch = e.kind() == Kind::mismatched_calls;
    return {mismatch ? JAXMG_INVALID_ARGUMENT : JAXMG_ABORTED, e.what(), true};
  } catch (const ScratchError& e) {
    return {JAXMG_RESOURCE_EXHAUSTED, e.what()};
  } catch (const UnimplementedError& e) {
    return {JAXMG_UNIMPLEMENTED, e.what()};
  } catch (const vendor::UnavailableError& e) {
    return {JAXMG_UNIMPLEMENTED, e.what()};
  } catch (const std::bad_alloc&) {
    return {JAXMG_RESOURCE_EXHAUSTED, "out of host memory"};
  } catch (const std::invalid_argument& e) {
    return {JAXMG_INVALID_ARGUMENT, e.what()};
  } catch (const std::exception& e) {
    return {JAXMG_INTERNAL, e.what()};
  } catch (...) {
    return {JAXMG_INTERNAL, "unknown exception"};
  }
}

Outcome agreed(std::span<const Outcome> outcomes) {
  const Outcome* felt = nullptr;
  for (const Outcome& o : outcomes) {
    if (o.ok()) {
      continue;
    }
    if (!o.secondary) {
      return o;
    }
    if (!felt) {
      felt = &o;
    }
  }
  return felt ? *felt : Outcome{};
}

}  // namespace jaxmg
