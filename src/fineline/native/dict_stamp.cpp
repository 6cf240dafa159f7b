// The words of watched dicts, for CPython 3.13 and newer.
#include "dict_stamp.h"

#if PY_VERSION_HEX >= 0x030D0000

#include <unordered_map>

namespace fineline {

struct WatchedDict {
  PyObject* dict;
  uint64_t stamp;
  size_t users;
  bool alive;  // and watched; another dict that comes to lie at its address is not, until it is taken
};

namespace {

int watcher = -1;
uint64_t latest = 0;

// By address. What is in it stays where it is. It is never destroyed: CPython tells of dicts until the process ends.
std::unordered_map<PyObject*, WatchedDict>& watched_dicts() {
  static auto* dicts = new std::unordered_map<PyObject*, WatchedDict>;
  return *dicts;
}

// CPython calls this before the change, and runs nothing in between: no pass can see the new stamp and the old contents.
int changed(PyDict_WatchEvent event, PyObject* dict, PyObject*, PyObject*) {
  auto found = watched_dicts().find(dict);
  if (found == watched_dicts().end()) return 0;
  found->second.stamp = ++latest;
  if (event == PyDict_EVENT_DEALLOCATED) found->second.alive = false;
  return 0;
}

}  // namespace

bool DictStamp::init() {
  if (watcher < 0) watcher = PyDict_AddWatcher(changed);
  if (watcher >= 0) return true;
  // Others have all of CPython's watchers: no dict has a word, and what is read of dicts is evaluated in each pass.
  PyErr_Clear();
  return true;
}

bool DictStamp::take(PyObject* dict) {
  if (watcher < 0) return false;
  if (watched_ && watched_->alive) return true;
  release();
  watched_ = &watched_dicts().try_emplace(dict, WatchedDict{dict, 0, 0, false}).first->second;
  watched_->users++;
  if (watched_->alive) return true;
  if (PyDict_Watch(watcher, dict) < 0) {
    PyErr_Clear();
    release();
    return false;
  }
  watched_->stamp = ++latest;
  watched_->alive = true;
  return true;
}

void DictStamp::release() {
  WatchedDict* watched = std::exchange(watched_, nullptr);
  if (!watched || --watched->users > 0) return;
  if (watched->alive && PyDict_Unwatch(watcher, watched->dict) < 0) PyErr_Clear();
  watched_dicts().erase(watched->dict);
}

const void* DictStamp::at() const { return &watched_->stamp; }

}  // namespace fineline

#endif
