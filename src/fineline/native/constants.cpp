// Comparing constants and looking up dict keys without ever running Python code.
#include "constants.h"

#include <algorithm>
#include <array>

#include "tensor_spec.h"

namespace fineline {

namespace {

// The start of a dict's keys, which the public headers leave out.
struct DictKeysHead {
  Py_ssize_t refcnt;
  uint8_t log2_size;
  uint8_t log2_index_bytes;
  uint8_t kind;
};
constexpr uint8_t kGeneralKeys = 0;

bool compares_by_identity(PyTypeObject* type) { return type->tp_richcompare == PyBaseObject_Type.tp_richcompare; }

bool compares_in_c(PyTypeObject* type) {
  richcmpfunc compare = type->tp_richcompare;
  return compare == PyLong_Type.tp_richcompare || compare == PyUnicode_Type.tp_richcompare ||
      compare == PyBytes_Type.tp_richcompare || is_device_type(type);
}

using Items = std::array<PyObject*, 3>;
Items slice_items(PyObject* object) {
  auto slice = reinterpret_cast<PySliceObject*>(object);
  return {slice->start, slice->stop, slice->step};
}

Verdict same_items(PyObject* const* a, PyObject* const* b, size_t count) {
  Verdict all = Verdict::Pass;
  for (size_t i = 0; i < count && all == Verdict::Pass; i++) all = same_constant(a[i], b[i]);
  return all;
}

}  // namespace

bool is_plain_constant(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyFloat_Type || type == &PyComplex_Type) return true;
  if (type == &PySlice_Type) {
    Items items = slice_items(value);
    return std::all_of(items.begin(), items.end(), is_plain_constant);
  }
  if (PyTuple_Check(value)) return std::all_of(&PyTuple_GET_ITEM(value, 0), &PyTuple_GET_ITEM(value, Py_SIZE(value)), is_plain_constant);
  return compares_by_identity(type) || compares_in_c(type);
}

Verdict same_constant(PyObject* a, PyObject* b) {
  if (a == b) return Verdict::Pass;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return Verdict::Fail;
  auto verdict = [](bool same) { return same ? Verdict::Pass : Verdict::Fail; };
  if (type == &PyFloat_Type) {
    double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return verdict(std::memcmp(&x, &y, sizeof x) == 0);
  }
  if (type == &PyComplex_Type) {
    Py_complex x = reinterpret_cast<PyComplexObject*>(a)->cval, y = reinterpret_cast<PyComplexObject*>(b)->cval;
    return verdict(std::memcmp(&x, &y, sizeof x) == 0);
  }
  if (PyTuple_Check(a)) {
    if (Py_SIZE(a) != Py_SIZE(b)) return Verdict::Fail;
    return same_items(&PyTuple_GET_ITEM(a, 0), &PyTuple_GET_ITEM(b, 0), Py_SIZE(a));
  }
  if (type == &PySlice_Type) return same_items(slice_items(a).data(), slice_items(b).data(), 3);
  if (compares_by_identity(type)) return Verdict::Fail;
  if (compares_in_c(type)) return verdict(PyObject_RichCompareBool(a, b, Py_EQ) == 1);
  return Verdict::Python;
}

Verdict find_key(PyObject* dict, PyObject* key, Py_hash_t hash, PyObject** value) {
  auto keys = reinterpret_cast<DictKeysHead*>(reinterpret_cast<PyDictObject*>(dict)->ma_keys);
  if (keys->kind != kGeneralKeys && PyUnicode_CheckExact(key)) {
    *value = _PyDict_GetItem_KnownHash(dict, key, hash);
    return *value ? Verdict::Pass : Verdict::Fail;
  }
  // A lookup compares the key with every stored key of the same hash. Do that here, by scanning, to see before each comparison whether
  // it stays in C.
  bool plain = is_plain_constant(key);
  Py_ssize_t position = 0;
  PyObject *stored, *found;
  Py_hash_t stored_hash;
  while (_PyDict_Next(dict, &position, &stored, &found, &stored_hash)) {
    if (stored_hash != hash) continue;
    if (stored != key) {
      if (!plain || !is_plain_constant(stored)) return Verdict::Python;
      if (PyObject_RichCompareBool(stored, key, Py_EQ) != 1) continue;
    }
    *value = found;
    return Verdict::Pass;
  }
  return Verdict::Fail;
}

}  // namespace fineline
