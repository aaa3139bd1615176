// How jemalloc keeps memory when the executable is linked with it: buffers of a step are reused by the next one instead
// of going back to the kernel and coming again page by page.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always";
}
