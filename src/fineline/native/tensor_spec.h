// Checking a tensor's metadata by its C++ fields.
#pragma once

#include <cstddef>
#include <memory>

#include "object.h"

namespace fineline {

class TensorSpec;

using TensorSpecPtr = std::shared_ptr<const TensorSpec>;

// One tensor to check, and what it must be like.
struct TensorCheck {
  TensorCheck(PyObject* tensor, const TensorSpec* spec);

  PyObject* tensor;
  const TensorSpec* spec;
  // Where the check read when the entry was made. It will most likely read there again, so that memory is asked for
  // ahead of time; nothing else is done with these addresses.
  const void* hints[4];
};

// Reads the facts of a `tensor` step; null if its fields alone cannot tell (subclasses with a dispatch of their own,
// layouts other than strided), which leaves the check to Python.
TensorSpecPtr parse_tensor_spec(PyObject* facts);

// Whether two specs ask the same, so that one can stand for both: fewer of them stay closer at hand.
bool same_spec(const TensorSpec& a, const TensorSpec& b);

bool tensor_matches(PyObject* object, const TensorSpec& spec);
bool tensors_match(const TensorCheck* checks, size_t count);

// A key that tensors with the same storage have in common; null if `object` is no tensor.
const void* storage_key(PyObject* object);

// The two words in memory that decide a tensor's storage key, in the order in which one leads to the other.
struct StoragePath {
  const void* impl;
  const void* storage;
};
StoragePath storage_path(PyObject* tensor);

bool is_device_type(PyTypeObject* type);

}  // namespace fineline
