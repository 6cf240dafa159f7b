// Checking a tensor's metadata by its C++ fields.
#pragma once

#include <c10/core/TensorImpl.h>

#include <memory>
#include <vector>

#include "object.h"

namespace fineline {

class TensorSpec;
using TensorSpecPtr = std::shared_ptr<const TensorSpec>;

// Reads the facts of a `tensor` step; null if its fields alone cannot tell (keys of functorch, layouts other than strided), which leaves
// the check to Python.
TensorSpecPtr parse_tensor_spec(PyObject* facts);

// `Python` if the class of the tensor answers for its sizes, strides, device or layout.
Verdict tensor_matches(PyObject* object, const TensorSpec& spec);

// Where the memory is that decides whether a tensor that matches `spec` goes on doing so, in an order in which each word leads to the
// next, after its class. None if it is more than a few words.
std::vector<const void*> tensor_words(PyObject* tensor, const TensorSpec& spec);

// One of a tensor's sizes, strides, or its storage offset. `Fail` if `object` has none such, `Python` if only its own code can tell.
enum class TensorNumber : uint8_t { Size, Stride, Offset };
Verdict tensor_number(PyObject* object, TensorNumber which, size_t index, int64_t& number);

// The fields of a tensor, if they alone tell its sizes, strides and device; null else.
const c10::TensorImpl* readable_impl(PyObject* object);

// A key that tensors with the same storage have in common; null if `object` is no tensor.
const void* storage_key(PyObject* object);
// Whether a tensor lies in memory that is not PyTorch's alone, such as that of an array.
bool is_foreign(PyObject* object);
std::vector<const void*> storage_words(PyObject* tensor);

bool is_device_type(PyTypeObject* type);

}  // namespace fineline
