// A cheap picture of the state that `facts.ambient_facts()` describes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace fineline {

// Two equal pictures mean equal facts. Words, so that pictures compare as memory.
using AmbientPicture = std::array<uint64_t, 10>;

// None: a mode or a transform is active, whose facts need Python.
std::optional<AmbientPicture> picture_ambient();

// Which control rules hold (guards/rulebook.py): a number for the process and one for the calling thread.
void set_rules(uint64_t process, uint64_t thread);

}  // namespace fineline
