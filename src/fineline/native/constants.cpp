// Comparing constants and looking up dict keys without ever running Python code.
#include "constants.h"

#include <algorithm>
#include <span>

#include "tensor_spec.h"

namespace fineline {

namespace {

// An entry of a dict whose keys are of any kind.
struct DictEntry {
  Py_hash_t hash;
  PyObject* key;
  PyObject* value;
};

// The start of a dict's keys, which the public headers leave out. Alike from CPython 3.11 to 3.14.
struct DictKeysHead {
  Py_ssize_t refcnt;
  uint8_t log2_size;
  uint8_t log2_index_bytes;
  uint8_t kind;
  uint32_t version;
  Py_ssize_t usable;
  Py_ssize_t used;  // entries, those without a value included

  // They lie behind the indices.
  const DictEntry* entries() const {
    return reinterpret_cast<const DictEntry*>(reinterpret_cast<const char*>(this + 1) + (size_t{1} << log2_index_bytes));
  }
};
constexpr uint8_t kGeneralKeys = 0;

bool compares_by_identity(PyTypeObject* type) { return type->tp_richcompare == PyBaseObject_Type.tp_richcompare; }

bool compares_in_c(PyTypeObject* type) {
  richcmpfunc compare = type->tp_richcompare;
  return compare == PyLong_Type.tp_richcompare || compare == PyUnicode_Type.tp_richcompare ||
      compare == PyBytes_Type.tp_richcompare || is_device_type(type);
}

template <typename Value>
bool same_bits(Value a, Value b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

bool has_items(PyObject* object) { return PyTuple_Check(object) || PySlice_Check(object); }

// Of a tuple, or the three of a slice.
std::span<PyObject* const> items_of(PyObject* object) {
  if (PySlice_Check(object)) return {&reinterpret_cast<PySliceObject*>(object)->start, 3};
  return {&PyTuple_GET_ITEM(object, 0), static_cast<size_t>(Py_SIZE(object))};
}

// As `PyDict_Next`, with the stored hash; CPython has no function for it from 3.13 on.
bool next_entry(PyObject* dict, Py_ssize_t* position, DictEntry& entry) {
  auto keys = reinterpret_cast<DictKeysHead*>(reinterpret_cast<PyDictObject*>(dict)->ma_keys);
  if (keys->kind != kGeneralKeys) {
    if (!PyDict_Next(dict, position, &entry.key, &entry.value)) return false;
    entry.hash = PyObject_Hash(entry.key);  // of an exact str, which keeps it
    return true;
  }
  for (; *position < keys->used; ++*position) {
    entry = keys->entries()[*position];
    if (entry.value) return ++*position, true;
  }
  return false;
}

}  // namespace

bool is_plain_constant(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyFloat_Type || type == &PyComplex_Type) return true;
  if (has_items(value)) return std::ranges::all_of(items_of(value), is_plain_constant);
  return compares_by_identity(type) || compares_in_c(type);
}

Verdict same_constant(PyObject* a, PyObject* b) {
  if (a == b) return Verdict::Pass;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return Verdict::Fail;
  if (type == &PyFloat_Type) return verdict(same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b)));
  if (type == &PyComplex_Type) return verdict(same_bits(PyComplex_AsCComplex(a), PyComplex_AsCComplex(b)));
  if (has_items(a)) {
    auto xs = items_of(a), ys = items_of(b);
    Verdict all = verdict(xs.size() == ys.size());
    for (size_t i = 0; i < xs.size() && all == Verdict::Pass; i++) all = same_constant(xs[i], ys[i]);
    return all;
  }
  if (compares_by_identity(type)) return Verdict::Fail;
  if (compares_in_c(type)) return verdict(PyObject_RichCompareBool(a, b, Py_EQ) == 1);
  return Verdict::Python;
}

Verdict find_key(PyObject* dict, PyObject* key, Py_hash_t hash, PyObject** value) {
  auto keys = reinterpret_cast<DictKeysHead*>(reinterpret_cast<PyDictObject*>(dict)->ma_keys);
  if (keys->kind != kGeneralKeys && PyUnicode_CheckExact(key)) {
    *value = _PyDict_GetItem_KnownHash(dict, key, hash);
    return verdict(*value);
  }
  // A lookup compares the key with every stored key of the same hash. Do that here, by scanning, to see before each comparison whether
  // it stays in C.
  bool plain = is_plain_constant(key);
  Py_ssize_t position = 0;
  DictEntry entry;
  while (next_entry(dict, &position, entry)) {
    if (entry.hash != hash) continue;
    if (entry.key != key) {
      if (!plain || !is_plain_constant(entry.key)) return Verdict::Python;
      if (PyObject_RichCompareBool(entry.key, key, Py_EQ) != 1) continue;
    }
    *value = entry.value;
    return Verdict::Pass;
  }
  return Verdict::Fail;
}

}  // namespace fineline
