# Warnings of our own targets.
function(jaxmg_warning_options target)
  target_compile_options(${target} INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow>)
  if(JAXMG_WERROR)
    target_compile_options(${target} INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
endfunction()
