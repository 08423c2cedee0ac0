// The thin FFI library: XLA's handlers around an engine's C boundary.
//
// A library built with older FFI headers than the runtime's is accepted, one built with newer
// headers is not, and the layout of some structures changed in between: so this file, and it alone,
// is compiled once per generation of headers. With JAXMG_CUDA_HANDLERS it serves the platform
// CUDA, else the CPU.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "ffi/call.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

// What XLA keeps for one call site of one executable.
struct Site {
  static ffi::TypeId id;
  void* const handle = jaxmg_site_create();

  Site() = default;
  ~Site() { jaxmg_site_destroy(handle); }
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;
};
ffi::TypeId Site::id = {};

void destroy_site(void* site) {
  delete static_cast<Site*>(site);
}

struct NewSite {
  std::unique_ptr<Site> site;  // null if there is no memory
};

// What differs between generations in the arguments that hand a state over.
template <class Arguments>
void complete_arguments(Arguments& a) {
  if constexpr (requires { a.deleter; }) {
    a.deleter = destroy_site;
  }
  if constexpr (requires { a.stage; }) {
    a.stage = XLA_FFI_ExecutionStage_INSTANTIATE;
  }
}

}  // namespace

// The headers' own encoding of a state makes the type's id part of the handler's metadata, so that
// XLA wants to know the type before the handler. Python cannot see to that: what is registered
// before there is a client is kept back, and handed over handlers first.
template <ffi::ExecutionStage stage>
struct xla::ffi::ResultEncoding<stage, NewSite> {
  using Context = decltype(XLA_FFI_State_Set_Args::ctx);

  static XLA_FFI_Error* Encode(const XLA_FFI_Api* api, Context context, NewSite made) {
    if (!made.site || !made.site->handle) {
      return internal::CreateError(
          api, Error(ErrorCode::kResourceExhausted, "jaxmg: no memory for a call site"));
    }
    XLA_FFI_State_Set_Args arguments = {};
    arguments.struct_size = XLA_FFI_State_Set_Args_STRUCT_SIZE;
    arguments.ctx = context;
    arguments.type_id = &Site::id;
    arguments.state = made.site.get();
    complete_arguments(arguments);
    XLA_FFI_Error* const error = api->XLA_FFI_State_Set(&arguments);
    if (!error) {
      static_cast<void>(made.site.release());  // XLA's from now on
    }
    return error;
  }
};

namespace {

// XLA_FFI_TypeInfo as runtimes since 0.2 want it. Headers 0.1 do not have the structure; there the
// deleter goes along with each state.
struct SiteTypeInfo {
  std::size_t struct_size;
  void* extension_start;
  void (*deleter)(void* object);
};
SiteTypeInfo site_type_info = {sizeof(SiteTypeInfo), nullptr, destroy_site};

const char* name_of(jaxmg_routine routine) {
  switch (routine) {
    case JAXMG_POTRF:
      return "jaxmg_potrf";
    case JAXMG_POTRS:
      return "jaxmg_potrs";
    case JAXMG_LOGDET:
      return "jaxmg_logdet";
    case JAXMG_LOCATE:
      return "jaxmg_locate";
    case JAXMG_MIRROR:
      return "jaxmg_mirror";
    case JAXMG_POTRI:
      return "jaxmg_potri";
    case JAXMG_CYCLIC:
      return "jaxmg_cyclic";
    case JAXMG_GETRF:
      return "jaxmg_getrf";
    case JAXMG_GETRS:
      return "jaxmg_getrs";
    case JAXMG_GETDET:
      return "jaxmg_getdet";
    case JAXMG_GEQRF:
      return "jaxmg_geqrf";
    case JAXMG_ORMQR:
      return "jaxmg_ormqr";
    case JAXMG_ORGQR:
      return "jaxmg_orgqr";
    case JAXMG_QR_R:
      return "jaxmg_qr_r";
    case JAXMG_GEQRS:
      return "jaxmg_geqrs";
    case JAXMG_SYEVD:
      return "jaxmg_syevd";
    case JAXMG_TRSM:
      return "jaxmg_trsm";
    case JAXMG_CHOLUPDATE:
      return "jaxmg_cholupdate";
    case JAXMG_GETRI:
      return "jaxmg_getri";
    case JAXMG_POSV:
      return "jaxmg_posv";
    case JAXMG_GESV:
      return "jaxmg_gesv";
    case JAXMG_GELS:
      return "jaxmg_gels";
  }
  return "jaxmg";
}

std::int32_t dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return JAXMG_F32;
    case ffi::DataType::F64:
      return JAXMG_F64;
    case ffi::DataType::C64:
      return JAXMG_C64;
    case ffi::DataType::C128:
      return JAXMG_C128;
    case ffi::DataType::S32:
      return JAXMG_I32;
    default:
      return JAXMG_OTHER_DTYPE;
  }
}

// Fills a jaxmg_call from what XLA hands over; the first thing that does not fit is kept.
class Decoder {
 public:
  Decoder(jaxmg_routine routine, jaxmg_call& call) : routine_(routine), call_(call) {
    call_.routine = routine;
  }

  void buffers(const ffi::RemainingArgs& arguments, const ffi::RemainingRets& results) {
    if (arguments.size() > JAXMG_MAX_OPERANDS || results.size() > JAXMG_MAX_OPERANDS) {
      return fail("has more than " + std::to_string(JAXMG_MAX_OPERANDS) + " operands or results");
    }
    call_.argument_count = static_cast<std::int32_t>(arguments.size());
    call_.result_count = static_cast<std::int32_t>(results.size());
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto buffer = arguments.get<ffi::AnyBuffer>(i);
      buffer ? put(*buffer, call_.arguments[i]) : fail("has an operand that is not a buffer");
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      auto buffer = results.get<ffi::AnyBuffer>(i);
      buffer ? put(**buffer, call_.results[i]) : fail("has a result that is not a buffer");
    }
  }

  void attributes(const ffi::Dictionary& given) {
    get(given, "n", call_.n);
    get(given, "tile", call_.tile);
    switch (routine_) {
      case JAXMG_POTRF:
        get(given, "natural", call_.natural);
        get(given, "precision", call_.precision);
        get(given, "triangle", call_.triangle);
        return get(given, "backend", call_.backend);
      case JAXMG_POSV:
        get(given, "natural", call_.natural);
        get(given, "precision", call_.precision);
        get(given, "triangle", call_.triangle);
        return get(given, "replicated", call_.replicated);
      case JAXMG_POTRS:
        get(given, "natural", call_.natural);
        get(given, "replicated", call_.replicated);
        return get(given, "backend", call_.backend);
      case JAXMG_CYCLIC:
        return get(given, "inverse", call_.inverse);
      case JAXMG_GETRF:
        get(given, "natural", call_.natural);
        get(given, "precision", call_.precision);
        return get(given, "backend", call_.backend);
      case JAXMG_GESV:
        get(given, "natural", call_.natural);
        get(given, "precision", call_.precision);
        return get(given, "replicated", call_.replicated);
      case JAXMG_GETRS:
        get(given, "transpose", call_.transpose);
        get(given, "replicated", call_.replicated);
        return get(given, "backend", call_.backend);
      case JAXMG_ORMQR:
      case JAXMG_GEQRS:
        return get(given, "adjoint", call_.adjoint);
      case JAXMG_SYEVD:
        get(given, "precision", call_.precision);
        get(given, "triangle", call_.triangle);
        get(given, "vectors", call_.vectors);
        get(given, "first", call_.first);
        get(given, "count", call_.count);
        return get(given, "backend", call_.backend);
      case JAXMG_MIRROR:
        return get(given, "triangle", call_.triangle);
      case JAXMG_TRSM:
        get(given, "natural", call_.natural);
        get(given, "triangle", call_.triangle);
        get(given, "transpose", call_.transpose);
        get(given, "unit", call_.unit);
        return get(given, "replicated", call_.replicated);
      case JAXMG_CHOLUPDATE:
        get(given, "downdate", call_.downdate);
        return get(given, "natural", call_.natural);
      case JAXMG_LOGDET:
      case JAXMG_POTRI:
        get(given, "natural", call_.natural);
        return get(given, "backend", call_.backend);
      case JAXMG_LOCATE:
      case JAXMG_GETDET:
      case JAXMG_GETRI:
      case JAXMG_GEQRF:
      case JAXMG_ORGQR:
      case JAXMG_QR_R:
      case JAXMG_GELS:
        return;
    }
  }

  ffi::Error error() const {
    return message_.empty() ? ffi::Error::Success() : ffi::Error::InvalidArgument(message_);
  }

 private:
  void put(const ffi::AnyBuffer& from, jaxmg_buffer& to) {
    const auto dims = from.dimensions();
    if (dims.size() > JAXMG_MAX_DIMS) {
      return fail("has a buffer of " + std::to_string(dims.size()) + " dimensions");
    }
    to.data = from.untyped_data();
    to.dtype = dtype_of(from.element_type());
    to.rank = static_cast<std::int32_t>(dims.size());
    for (std::size_t i = 0; i < dims.size(); ++i) {
      to.dims[i] = dims[i];
    }
  }

  void get(const ffi::Dictionary& given, const char* attribute, std::int64_t& value) {
    const auto found = given.get<std::int64_t>(attribute);
    if (!found) {
      return fail(std::string("needs the attribute '") + attribute + "' as a 64-bit integer");
    }
    value = *found;
  }

  void fail(const std::string& what) {
    if (message_.empty()) {
      message_ = std::string(name_of(routine_)) + " " + what;
    }
  }

  jaxmg_routine routine_;
  jaxmg_call& call_;
  std::string message_;
};

ffi::Error error_of(std::int32_t code, const char* message) {
  return code == JAXMG_OK ? ffi::Error::Success()
                          : ffi::Error(static_cast<ffi::ErrorCode>(code), message);
}

NewSite instantiate(ffi::Dictionary) {
  return {std::unique_ptr<Site>(new (std::nothrow) Site)};
}

ffi::Error decode(jaxmg_routine routine, jaxmg_call& call, ffi::RunId run, std::int32_t ordinal,
                  const Site* site, const ffi::RemainingArgs& arguments,
                  const ffi::RemainingRets& results, const ffi::Dictionary& attributes) {
  Decoder decoder(routine, call);
  decoder.buffers(arguments, results);
  decoder.attributes(attributes);
  call.run_id = run.run_id;
  call.device_ordinal = ordinal;
  call.site = site->handle;
  return decoder.error();
}

#ifdef JAXMG_CUDA_HANDLERS

void* allocate(void* scratch, std::size_t bytes) {
  return static_cast<ffi::ScratchAllocator*>(scratch)->Allocate(bytes).value_or(nullptr);
}

// The engine only puts work into the stream, and completes before it returns.
template <jaxmg_routine routine>
ffi::Error execute(ffi::RunId run, std::int32_t ordinal, Site* site, void* stream,
                   ffi::ScratchAllocator scratch, ffi::RemainingArgs arguments,
                   ffi::RemainingRets results, ffi::Dictionary attributes) {
  jaxmg_call call = {};
  ffi::Error error = decode(routine, call, run, ordinal, site, arguments, results, attributes);
  if (error.failure()) {
    return error;
  }
  call.stream = stream;
  call.allocate = allocate;
  call.allocator = &scratch;
  call.token = &error;
  call.complete = [](void* token, std::int32_t code, const char* message) {
    *static_cast<ffi::Error*>(token) = error_of(code, message);
  };
  jaxmg_submit(&call);
  return error;
}

#define JAXMG_BINDING                    \
  ffi::Ffi::Bind()                       \
      .Ctx<ffi::RunId>()                 \
      .Ctx<ffi::DeviceOrdinal>()         \
      .Ctx<ffi::State<Site>>()           \
      .Ctx<ffi::PlatformStream<void*>>() \
      .Ctx<ffi::ScratchAllocator>()      \
      .RemainingArgs()                   \
      .RemainingRets()                   \
      .Attrs()

#else

// Nothing may block here: see cpu_engine.cpp.
template <jaxmg_routine routine>
ffi::Future execute(ffi::RunId run, std::int32_t ordinal, Site* site, ffi::RemainingArgs arguments,
                    ffi::RemainingRets results, ffi::Dictionary attributes) {
  auto promise = std::make_unique<ffi::Promise>();
  ffi::Future future(*promise);
  jaxmg_call call = {};
  ffi::Error error = decode(routine, call, run, ordinal, site, arguments, results, attributes);
  if (error.failure()) {
    promise->SetError(std::move(error));
    return future;
  }
  call.token = promise.release();
  call.complete = [](void* token, std::int32_t code, const char* message) {
    const std::unique_ptr<ffi::Promise> mine(static_cast<ffi::Promise*>(token));
    code == JAXMG_OK ? mine->SetAvailable() : mine->SetError(error_of(code, message));
  };
  jaxmg_submit(&call);
  return future;
}

#define JAXMG_BINDING            \
  ffi::Ffi::Bind()               \
      .Ctx<ffi::RunId>()         \
      .Ctx<ffi::DeviceOrdinal>() \
      .Ctx<ffi::State<Site>>()   \
      .RemainingArgs()           \
      .RemainingRets()           \
      .Attrs()

#endif

}  // namespace

#pragma GCC visibility push(default)

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_instantiate, instantiate, ffi::Ffi::BindInstantiate().Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_potrf, execute<JAXMG_POTRF>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_potrs, execute<JAXMG_POTRS>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_posv, execute<JAXMG_POSV>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_logdet, execute<JAXMG_LOGDET>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_locate, execute<JAXMG_LOCATE>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_potri, execute<JAXMG_POTRI>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_mirror, execute<JAXMG_MIRROR>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_trsm, execute<JAXMG_TRSM>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_cholupdate, execute<JAXMG_CHOLUPDATE>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_cyclic, execute<JAXMG_CYCLIC>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_getrf, execute<JAXMG_GETRF>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_getrs, execute<JAXMG_GETRS>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_gesv, execute<JAXMG_GESV>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_getdet, execute<JAXMG_GETDET>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_getri, execute<JAXMG_GETRI>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_geqrf, execute<JAXMG_GEQRF>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_ormqr, execute<JAXMG_ORMQR>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_orgqr, execute<JAXMG_ORGQR>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_qr_r, execute<JAXMG_QR_R>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_geqrs, execute<JAXMG_GEQRS>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_gels, execute<JAXMG_GELS>, JAXMG_BINDING);
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxmg_syevd, execute<JAXMG_SYEVD>, JAXMG_BINDING);

// What XLA must be told of the state's type before the first call.
extern "C" void* jaxmg_type_id() {
  return &Site::id;
}
extern "C" void* jaxmg_type_info() {
  return &site_type_info;
}

#pragma GCC visibility pop
