#include "dist/rank_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace stft::dist {
namespace {

constexpr std::string_view kLiveStart = "\r\033[K";

void write_text(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return;
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
}

bool has_error_label(std::string_view line) {
  constexpr std::string_view kColoured = "\033[31merror: \033[0m";
  return line.starts_with("error: ") || line.starts_with(kColoured);
}

}  // namespace

RankOutput::RankOutput(int fd, std::string prefix) : fd_(fd), prefix_(std::move(prefix)) {
  ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

RankOutput::RankOutput(RankOutput&& other) noexcept {
  *this = std::move(other);
}

RankOutput& RankOutput::operator=(RankOutput&& other) noexcept {
  std::swap(fd_, other.fd_);
  prefix_ = std::move(other.prefix_);
  partial_ = std::move(other.partial_);
  last_error_ = std::move(other.last_error_);
  in_error_ = other.in_error_;
  return *this;
}

RankOutput::~RankOutput() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void RankOutput::pass_on(std::string_view line) {
  std::string_view body = line;
  std::string clear;
  while (body.starts_with(kLiveStart)) {
    clear = kLiveStart;
    body.remove_prefix(kLiveStart.size());
  }
  if (has_error_label(body)) {
    last_error_.clear();
    in_error_ = true;
  } else if (body.starts_with("warning: ")) {
    in_error_ = false;
  }
  if (in_error_) {
    last_error_.append(last_error_.empty() ? "" : "\n").append(body);
    return;
  }
  write_text(fmt::format("{}{}{}\n", clear, prefix_, body));
}

bool RankOutput::read_some() {
  std::array<char, 16384> buffer;
  const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
  if (n < 0) {
    if (errno != EAGAIN && errno != EINTR) {
      ::close(std::exchange(fd_, -1));
    }
    return false;
  }
  if (n == 0) {
    ::close(std::exchange(fd_, -1));
    if (!partial_.empty() && !partial_.starts_with(kLiveStart)) {
      pass_on(partial_);
    }
    partial_.clear();
    return false;
  }
  partial_.append(buffer.data(), static_cast<size_t>(n));
  size_t begin = 0;
  for (size_t end = partial_.find('\n'); end != std::string::npos; end = partial_.find('\n', begin)) {
    pass_on(std::string_view(partial_).substr(begin, end - begin));
    begin = end + 1;
  }
  partial_.erase(0, begin);
  if (partial_.starts_with(kLiveStart)) {  // a live line has no end: show it now
    write_text(partial_);
    partial_.clear();
  }
  return true;
}

void RankOutput::drain() {
  while (fd_ >= 0 && read_some()) {
  }
}

void write_line(std::string_view text) {
  write_text(fmt::format("{}\n", text));
}

}  // namespace stft::dist
