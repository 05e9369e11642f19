// Passing errors up without noise: KVF_TRY(name, expression) binds the value or returns the error.
#pragma once

#include "kvferry/result.h"

#define KVF_CONCAT_(a, b) a##b
#define KVF_CONCAT(a, b) KVF_CONCAT_(a, b)
#define KVF_TRY_(result, name, expression)       \
  auto result = (expression);                    \
  if (!result) return std::move(result).error(); \
  auto name = std::move(result).value()
#define KVF_TRY(name, expression) KVF_TRY_(KVF_CONCAT(kvf_try_, __LINE__), name, expression)
#define KVF_CHECK(expression)                                                \
  do {                                                                       \
    if (auto kvf_check = (expression); !kvf_check) return kvf_check.error(); \
  } while (false)
