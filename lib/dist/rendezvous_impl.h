// Private to lib/dist: the store behind a Rendezvous.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "dist/rendezvous.h"

namespace stft::dist {

struct Rendezvous::Impl {
  c10::intrusive_ptr<c10d::Store> store;
};

}  // namespace stft::dist
