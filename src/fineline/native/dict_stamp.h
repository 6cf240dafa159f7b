// A word in memory that tells the states of a dict apart: while it has the same value, the dict is the same and holds the same.
//
// Up to CPython 3.12 this is the version tag in the dict. From 3.13 on a tag does not change where an attribute of an object is stored
// (CPython's issue 125608), and 3.14 has none: there the dict is watched, and the word lies in a table of this file.
#pragma once

#include "object.h"

namespace fineline {

#if PY_VERSION_HEX < 0x030D0000

class DictStamp {
 public:
  // Prepares the class; false with an error set.
  static bool init() { return true; }

  // True if the dict has a word now. Called again, it gives the word for the dict that is at the address then.
  bool take(PyObject* dict) {
    at_ = &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
    return true;
  }
  const void* at() const { return at_; }

 private:
  const void* at_ = nullptr;
};

#else

struct WatchedDict;

class DictStamp {
 public:
  static bool init();

  DictStamp() = default;
  DictStamp(DictStamp&& other) noexcept : watched_(std::exchange(other.watched_, nullptr)) {}
  DictStamp& operator=(DictStamp&& other) noexcept {
    std::swap(watched_, other.watched_);
    return *this;
  }
  ~DictStamp() { release(); }

  bool take(PyObject* dict);
  const void* at() const;

 private:
  void release();

  WatchedDict* watched_ = nullptr;
};

#endif

// Whether the type has a version, which changes before what a lookup in the type finds can.
inline bool has_version(PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030D0000
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG);
#else
  return type->tp_version_tag != 0;  // the flag is never set any more
#endif
}

}  // namespace fineline
