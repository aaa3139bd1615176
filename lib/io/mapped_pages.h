// Memory of mapped files.
#pragma once

#include <cstddef>
#include <span>

namespace stft::io {

// Gives back the memory of whole pages within bytes of a MappedFile, which counts as this process's until then. The
// bytes stay valid: whoever reads them again gets them from the file.
void release_pages(std::span<const std::byte> mapped);

}  // namespace stft::io
