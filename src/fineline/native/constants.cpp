// Comparing constants and looking up dict keys without ever running Python code.
#include "constants.h"

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

bool slots_plain(PySliceObject* slice) {
  return is_plain_constant(slice->start) && is_plain_constant(slice->stop) && is_plain_constant(slice->step);
}

Verdict both(Verdict first, Verdict second) { return first == Verdict::Pass ? second : first; }

}  // namespace

bool is_plain_constant(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyFloat_Type || type == &PyComplex_Type) return true;
  if (type == &PySlice_Type) return slots_plain(reinterpret_cast<PySliceObject*>(value));
  if (PyTuple_Check(value)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
      if (!is_plain_constant(PyTuple_GET_ITEM(value, i))) return false;
    }
    return true;
  }
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
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return Verdict::Fail;
    Verdict all = Verdict::Pass;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a) && all == Verdict::Pass; i++) {
      all = same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
    }
    return all;
  }
  if (type == &PySlice_Type) {
    auto x = reinterpret_cast<PySliceObject*>(a), y = reinterpret_cast<PySliceObject*>(b);
    return both(same_constant(x->start, y->start), both(same_constant(x->stop, y->stop), same_constant(x->step, y->step)));
  }
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
