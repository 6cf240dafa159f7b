// Checking a tensor's metadata by its C++ fields.
#include "tensor_spec.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>

namespace fineline {

class TensorSpec {
 public:
  PyTypeObject* cls;
  uint64_t keys;
  caffe2::TypeMeta dtype;
  c10::Device device{c10::kCPU};
  bool requires_grad;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

namespace {

// Pointers to private fields, which have readers but no addresses: only an explicit instantiation may name such a field.
template <typename Field, auto Pointer>
struct Expose {
  friend constexpr auto private_field(Field) { return Pointer; }
};
#define EXPOSE(Field, member)                   \
  struct Field {                                \
    friend constexpr auto private_field(Field); \
  };                                            \
  template struct Expose<Field, &c10::TensorImpl::member>
EXPOSE(SizesField, sizes_and_strides_);
EXPOSE(AutogradField, autograd_meta_);
EXPOSE(DtypeField, data_type_);
EXPOSE(KeysField, key_set_);
static_assert(sizeof(at::Tensor) == 8 && sizeof(c10::Storage) == 8 && sizeof(c10::DispatchKeySet) == 8);

// Positions of facts.TensorFacts.
enum { kClass, kDtype, kDevice, kLayout, kSizes, kStrides, kRequiresGrad, kKeys, kInference, kCount };

// In place of a size or stride: any will do. No tensor has this one.
constexpr int64_t kAny = std::numeric_limits<int64_t>::min();

bool is_tensor(PyObject* object) { return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(THPVariableClass)); }

const c10::TensorImpl* impl_of(PyObject* tensor) { return THPVariable_Unpack(tensor).unsafeGetTensorImpl(); }

// Tensors with one of these keys answer for sizes, strides or device through code of their own.
bool is_opaque(c10::DispatchKeySet keys) {
  using K = c10::DispatchKey;
  constexpr c10::DispatchKeySet opaque({K::NestedTensor, K::Functionalize, K::FuncTorchBatched, K::FuncTorchGradWrapper, K::BatchedNestedTensor,
                                        K::Batched, K::ZeroTensor});
  return keys.raw_repr() & opaque.raw_repr();
}

// Tensors with the key Python may do so through a method of their class: their flags, which only derived classes read, say whether.
struct Flags : c10::TensorImpl {
  static bool asks_class(const c10::TensorImpl* impl) {
    auto flags = static_cast<const Flags*>(impl);
    return flags->sizes_strides_policy_ || flags->device_policy_ || flags->layout_policy_;
  }
};

bool asks_class(const c10::TensorImpl* impl) { return impl->key_set().has(c10::DispatchKey::Python) && Flags::asks_class(impl); }

bool parse_ints(PyObject* tuple, std::vector<int64_t>& values) {
  if (!PyTuple_Check(tuple)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    if (item != Py_None && !PyLong_CheckExact(item)) return false;
    values.push_back(item == Py_None ? kAny : PyLong_AsLongLong(item));
  }
  return true;
}

bool agree(const std::vector<int64_t>& expected, c10::IntArrayRef found) {
  auto fits = [](int64_t wanted, int64_t number) { return wanted == number || wanted == kAny; };
  return std::equal(expected.begin(), expected.end(), found.begin(), found.end(), fits);
}

const torch::autograd::AutogradMeta* autograd_of(const c10::TensorImpl* impl) {
  return static_cast<const torch::autograd::AutogradMeta*>(impl->autograd_meta());
}

// Of a view without a history of its own, what its base says counts: it may have been made under no_grad.
const at::Tensor* base_in_question(const torch::autograd::AutogradMeta* meta) {
  if (!meta || !meta->is_view_ || meta->requires_grad_ || meta->grad_fn_) return nullptr;
  auto view = static_cast<const torch::autograd::DifferentiableViewMeta*>(meta);
  return view->has_bw_view() ? &view->get_backward_view().base_ : nullptr;
}

bool requires_grad(const c10::TensorImpl* impl) {
  auto meta = autograd_of(impl);
  const at::Tensor* base = base_in_question(meta);
  return meta && (base ? base->requires_grad() : meta->requires_grad_ || meta->grad_fn_);
}

void autograd_words(const c10::TensorImpl* impl, std::vector<const void*>& words) {
  auto meta = autograd_of(impl);
  words.push_back(&(impl->*private_field(AutogradField{})));
  if (meta) words.push_back(&meta->requires_grad_);
  if (meta && !meta->requires_grad_) words.push_back(&meta->grad_fn_);
  if (const at::Tensor* base = base_in_question(meta)) {
    words.push_back(base);
    autograd_words(base->unsafeGetTensorImpl(), words);
  }
}

}  // namespace

TensorSpecPtr parse_tensor_spec(PyObject* facts) {
  if (!PyTuple_Check(facts) || PyTuple_GET_SIZE(facts) != kCount) return nullptr;
  auto fact = [facts](int position) { return PyTuple_GET_ITEM(facts, position); };
  auto cls = reinterpret_cast<PyTypeObject*>(fact(kClass));
  if (!PyType_Check(fact(kClass)) || !PyType_IsSubtype(cls, reinterpret_cast<PyTypeObject*>(THPVariableClass))) return nullptr;
  if (!THPDtype_Check(fact(kDtype)) || !THPDevice_Check(fact(kDevice)) || !THPLayout_Check(fact(kLayout))) return nullptr;
  if (reinterpret_cast<THPLayout*>(fact(kLayout))->layout != c10::kStrided || !PyLong_Check(fact(kKeys))) return nullptr;
  auto spec = std::make_shared<TensorSpec>();
  bool readable = parse_ints(fact(kSizes), spec->sizes) && parse_ints(fact(kStrides), spec->strides);
  spec->keys = PyLong_AsUnsignedLongLong(fact(kKeys));
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return nullptr;
  }
  if (!readable || is_opaque(c10::DispatchKeySet(c10::DispatchKeySet::RAW, spec->keys))) return nullptr;
  spec->cls = cls;
  spec->dtype = c10::scalarTypeToTypeMeta(reinterpret_cast<THPDtype*>(fact(kDtype))->scalar_type);
  spec->device = reinterpret_cast<THPDevice*>(fact(kDevice))->device;
  spec->requires_grad = fact(kRequiresGrad) == Py_True;
  return spec;
}

Verdict tensor_matches(PyObject* object, const TensorSpec& spec) {
  if (Py_TYPE(object) != spec.cls) return Verdict::Fail;
  const c10::TensorImpl* impl = impl_of(object);
  // The key set comes first: it holds what proves the sizes and strides readable, the layout, and inference tensors.
  if (impl->key_set().raw_repr() != spec.keys) return Verdict::Fail;
  if (asks_class(impl)) return Verdict::Python;
  try {
    return verdict(impl->dtype() == spec.dtype && agree(spec.sizes, impl->sizes()) && agree(spec.strides, impl->strides()) &&
                   impl->device() == spec.device && requires_grad(impl) == spec.requires_grad);
  } catch (...) {  // a tensor without the field in question
    return Verdict::Fail;
  }
}

std::vector<const void*> tensor_words(PyObject* tensor, const TensorSpec& spec) {
  const c10::TensorImpl* impl = impl_of(tensor);
  if (asks_class(impl)) return {};
  // The first field of the sizes is their number. With many dimensions, they are kept elsewhere.
  const void* dimensions = &(impl->*private_field(SizesField{}));
  if (impl->sizes().size() > C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE || load_word(dimensions) != impl->sizes().size()) return {};
  std::vector<const void*> words = {&THPVariable_Unpack(tensor), dimensions};
  for (size_t i = 0; i < spec.sizes.size(); i++) {
    if (spec.sizes[i] != kAny) words.push_back(&impl->sizes()[i]);
  }
  for (size_t i = 0; i < spec.strides.size(); i++) {
    if (spec.strides[i] != kAny) words.push_back(&impl->strides()[i]);
  }
  // The word at the element type holds the device and the flags, too.
  words.insert(words.end(), {&(impl->*private_field(DtypeField{})), &(impl->*private_field(KeysField{}))});
  autograd_words(impl, words);
  return words;
}

Verdict tensor_number(PyObject* object, TensorNumber which, size_t index, int64_t& number) {
  if (!is_tensor(object)) return Verdict::Fail;
  const c10::TensorImpl* impl = impl_of(object);
  if (is_opaque(impl->key_set()) || asks_class(impl)) return Verdict::Python;
  try {
    if (which == TensorNumber::Offset) {
      number = impl->storage_offset();
      return Verdict::Pass;
    }
    c10::IntArrayRef numbers = which == TensorNumber::Size ? impl->sizes() : impl->strides();
    if (index >= numbers.size()) return Verdict::Fail;
    number = numbers[index];
    return Verdict::Pass;
  } catch (...) {  // a tensor without strides
    return Verdict::Fail;
  }
}

const c10::TensorImpl* readable_impl(PyObject* object) {
  if (!is_tensor(object)) return nullptr;
  const c10::TensorImpl* impl = impl_of(object);
  return is_opaque(impl->key_set()) || asks_class(impl) ? nullptr : impl;
}

const void* storage_key(PyObject* object) {
  if (!is_tensor(object)) return nullptr;
  const void* storage = impl_of(object)->unsafe_storage().unsafeGetStorageImpl();
  return storage ? storage : object;
}

bool is_foreign(PyObject* object) {
  if (!is_tensor(object)) return false;
  const c10::StorageImpl* storage = impl_of(object)->unsafe_storage().unsafeGetStorageImpl();
  return storage && !storage->resizable();
}

std::vector<const void*> storage_words(PyObject* tensor) {
  return {&THPVariable_Unpack(tensor), &impl_of(tensor)->unsafe_storage()};
}

bool is_device_type(PyTypeObject* type) { return type == &THPDeviceType; }

}  // namespace fineline
