// The layout of a tensor, kept without the tensor. A capture keeps one for each operator: read by five attributes and kept in a tuple, this
// took 2 to 3 % of Llama's first call, a part of it in the garbage collector, which does not look at these.
#include "layout.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>

#include "tensor_spec.h"

namespace fineline {

namespace {

struct Layout {
  PyObject_HEAD
  c10::SmallVector<int64_t, 10> numbers;  // the sizes, then the strides
  at::ScalarType dtype;
  c10::Device device;
  bool requires_grad;
};

const Layout& read(PyObject* self) { return *reinterpret_cast<Layout*>(self); }

PyObject* tuple_of(c10::IntArrayRef numbers) {
  Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  for (size_t i = 0; tuple && i < numbers.size(); i++) {
    PyObject* number = PyLong_FromLongLong(numbers[i]);
    if (number == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), number);
  }
  return tuple.release();
}

c10::IntArrayRef half(PyObject* self, size_t which) {
  const auto& numbers = read(self).numbers;
  return c10::IntArrayRef(numbers).slice(which * numbers.size() / 2, numbers.size() / 2);
}

PyObject* shape(PyObject* self, void*) { return tuple_of(half(self, 0)); }
PyObject* stride(PyObject* self, void*) { return tuple_of(half(self, 1)); }
PyObject* dtype(PyObject* self, void*) { return Py_NewRef(reinterpret_cast<PyObject*>(torch::getTHPDtype(read(self).dtype))); }
PyObject* device(PyObject* self, void*) { return THPDevice_New(read(self).device); }
PyObject* requires_grad(PyObject* self, void*) { return PyBool_FromLong(read(self).requires_grad); }

PyGetSetDef fields[] = {{"shape", shape, nullptr, "The sizes, a tuple.", nullptr},
                        {"stride", stride, nullptr, "The strides, a tuple.", nullptr},
                        {"dtype", dtype, nullptr, nullptr, nullptr},
                        {"device", device, nullptr, nullptr, nullptr},
                        {"requires_grad", requires_grad, nullptr, nullptr, nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};

void layout_dealloc(PyObject* self) {
  reinterpret_cast<Layout*>(self)->numbers.~SmallVector();
  PyObject_Free(self);
}

}  // namespace

PyTypeObject LayoutType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)  // which ends with a comma
    .tp_name = "fineline._native.Layout",
    .tp_basicsize = sizeof(Layout),
    .tp_dealloc = layout_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "What a fake tensor takes of a real one.",
    .tp_getset = fields,
};

PyObject* layout_of(PyObject*, PyObject* object) {
  const c10::TensorImpl* impl = THPVariable_CheckExact(object) ? readable_impl(object) : nullptr;
  if (impl == nullptr) Py_RETURN_NOTIMPLEMENTED;
  try {
    const at::ScalarType dtype = c10::typeMetaToScalarType(impl->dtype());
    if (impl->layout() != c10::kStrided || c10::isQIntType(dtype)) Py_RETURN_NONE;
    const c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
    const c10::Device device = impl->device();
    Layout* found = PyObject_New(Layout, &LayoutType);
    if (found == nullptr) return nullptr;
    new (&found->numbers) c10::SmallVector<int64_t, 10>(sizes.begin(), sizes.end());
    found->numbers.append(strides.begin(), strides.end());
    found->dtype = dtype;
    found->device = device;
    found->requires_grad = impl->requires_grad();
    return reinterpret_cast<PyObject*>(found);
  } catch (...) {  // a tensor without the field in question
    Py_RETURN_NOTIMPLEMENTED;
  }
}

}  // namespace fineline
