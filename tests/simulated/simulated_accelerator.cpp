// A simulated accelerator on torch's PrivateUse1 interface, for tests without a GPU.
//
// Each stream is a queue with a worker thread that runs CPU kernels on memory of the host. Time on a stream is computed, not
// measured: a kernel begins when it has been launched and the stream is free, and takes its nominal length, so that known
// lengths are exact however busy the machine is. An event has passed when its kernels have run and the host's clock
// (CLOCK_MONOTONIC, Python's perf_counter_ns) has reached its time. A test may stop that clock and advance it itself; the
// host's wait for an event then advances it to the time of the event.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::IValue;
using c10::Stream;
using c10::StreamId;
using torch::jit::Stack;

constexpr auto SIM = c10::DeviceType::PrivateUse1;
constexpr DeviceIndex DEVICES = 3;
constexpr size_t CAPACITY = size_t(4) << 30;
constexpr size_t BLOCK = 512;  // sizes are rounded up to it, as a caching allocator does
constexpr int64_t COPY_BYTES_PER_US = 10'000;

int64_t read_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

constexpr int64_t RUNNING = -1;
std::atomic<int64_t> stopped_ns{RUNNING};  // the time at which a test has stopped the clock

int64_t now_ns() {
  const int64_t stopped = stopped_ns.load();
  return stopped == RUNNING ? read_ns(CLOCK_MONOTONIC) : stopped;
}

void sleep_until(int64_t ns) {
  int64_t now = stopped_ns.load();
  while (now != RUNNING && now < ns)
    if (stopped_ns.compare_exchange_weak(now, ns)) return;
  if (now != RUNNING) return;
  timespec t{ns / 1'000'000'000LL, ns % 1'000'000'000LL};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) != 0) {
  }
}

struct Counts {
  std::atomic<int64_t> waits{0}, queries{0}, kernels{0}, unshaped{0};
} counts;

std::atomic<int64_t> kernel_ns{5'000};  // 0: as long as the CPU kernel took of its thread's time
std::mutex unshaped_mutex;
std::set<std::string> unshaped_names;  // operators whose result has no shape before they run: these wait

// ---- streams and events

// Never destroyed: workers wait on them until the process has ended.
std::mutex& mutex = *new std::mutex();  // of all queues and marks
std::condition_variable& changed = *new std::condition_variable();  // a mark is done, or a hold has ended

struct Mark {
  bool done = false;
  int64_t ns = 0;
  DeviceIndex device = 0;
};
using MarkPtr = std::shared_ptr<Mark>;

struct Queue {
  DeviceIndex device;
  int64_t free_ns = 0;
  std::deque<std::function<void(Queue&)>> tasks;
  std::condition_variable pushed;  // one per queue: a launch wakes one worker, not those of all streams

  explicit Queue(DeviceIndex of) : device(of) { std::thread([this] { work(); }).detach(); }

  void push(std::function<void(Queue&)> task) {
    std::lock_guard<std::mutex> lock(mutex);
    tasks.push_back(std::move(task));
    pushed.notify_one();
  }

  void work() {
    at::AutoDispatchBelowADInplaceOrView below;
    for (;;) {
      std::function<void(Queue&)> task;
      {
        std::unique_lock<std::mutex> lock(mutex);
        pushed.wait(lock, [this] { return !tasks.empty(); });
        task = std::move(tasks.front());
        tasks.pop_front();
      }
      try {
        task(*this);
      } catch (const std::exception& error) {
        fprintf(stderr, "simulated accelerator: a kernel failed: %s\n", error.what());
        abort();
      }
      task = nullptr;  // not below the lock: a tensor of Python's may die with it, which takes the interpreter's lock
    }
  }

  // A kernel of a fixed length (ns >= 0), of the nominal one, or of what it takes (-1).
  void launch(std::function<void()> kernel, int64_t ns = -1) {
    counts.kernels++;
    const int64_t launched = now_ns();
    if (ns < 0) ns = kernel_ns.load() > 0 ? kernel_ns.load() : -1;
    push([kernel = std::move(kernel), ns, launched](Queue& queue) {
      const int64_t before = read_ns(CLOCK_THREAD_CPUTIME_ID);
      if (kernel) kernel();
      const int64_t took = ns >= 0 ? ns : read_ns(CLOCK_THREAD_CPUTIME_ID) - before;
      queue.free_ns = std::max(queue.free_ns, launched) + took;
    });
  }

  MarkPtr mark() {
    auto mark = std::make_shared<Mark>();
    mark->device = device;
    const int64_t launched = now_ns();
    push([mark, launched](Queue& queue) {
      queue.free_ns = std::max(queue.free_ns, launched);
      std::lock_guard<std::mutex> lock(mutex);
      mark->ns = queue.free_ns;
      mark->done = true;
      changed.notify_all();
    });
    return mark;
  }

  void wait_for(MarkPtr mark) {
    push([mark = std::move(mark)](Queue& queue) {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return mark->done; });
      queue.free_ns = std::max(queue.free_ns, mark->ns);
    });
  }
};

bool passed(const MarkPtr& mark) {
  std::lock_guard<std::mutex> lock(mutex);
  return mark->done && mark->ns <= now_ns();
}

void wait_here(const MarkPtr& mark) {
  int64_t until = 0;
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return mark->done; });
    until = mark->ns;
  }
  if (until > now_ns()) sleep_until(until);
}

struct World {  // never destroyed: workers outlive the static objects
  std::mutex mutex;
  std::vector<std::unique_ptr<Queue>> queues[DEVICES];
  World() {
    for (DeviceIndex i = 0; i < DEVICES; ++i) queues[i].push_back(std::make_unique<Queue>(i));
  }
};
World& world() {
  static World* made = new World();
  return *made;
}

thread_local DeviceIndex current_device = 0;
thread_local StreamId current_stream[DEVICES] = {};

Queue& queue_of(DeviceIndex device, StreamId id) {
  std::lock_guard<std::mutex> lock(world().mutex);
  return *world().queues[device].at(static_cast<size_t>(id));
}
Queue& current_queue(DeviceIndex device) { return queue_of(device, current_stream[device]); }

void wait_current(DeviceIndex device) {
  counts.waits++;
  wait_here(current_queue(device).mark());
}

struct Event {
  MarkPtr mark;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return SIM; }
  Device exchangeDevice(Device d) const override {
    const DeviceIndex before = current_device;
    setDevice(d);
    return Device(SIM, before);
  }
  Device getDevice() const override { return Device(SIM, current_device); }
  void setDevice(Device d) const override {
    TORCH_CHECK(d.index() < DEVICES, "there is no device sim:", int(d.index()));
    if (d.index() >= 0) current_device = d.index();
  }
  void uncheckedSetDevice(Device d) const noexcept override {
    if (d.index() >= 0) current_device = d.index();
  }
  DeviceIndex of(Device d) const { return d.index() < 0 ? current_device : d.index(); }
  Stream getStream(Device d) const override {
    return Stream(Stream::UNSAFE, Device(SIM, of(d)), current_stream[of(d)]);
  }
  Stream getDefaultStream(Device d) const override { return Stream(Stream::DEFAULT, Device(SIM, of(d))); }
  Stream getNewStream(Device d, int) const override {
    std::lock_guard<std::mutex> lock(world().mutex);
    auto& queues = world().queues[of(d)];
    queues.push_back(std::make_unique<Queue>(of(d)));
    return Stream(Stream::UNSAFE, Device(SIM, of(d)), static_cast<StreamId>(queues.size() - 1));
  }
  Stream getStreamFromGlobalPool(Device d, bool) const override { return getNewStream(d, 0); }
  Stream exchangeStream(Stream s) const override {
    const Stream before = getStream(s.device());
    current_stream[s.device_index()] = s.id();
    return before;
  }
  DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  bool queryStream(const Stream& s) const override {
    counts.queries++;
    return passed(queue_of(s.device_index(), s.id()).mark());
  }
  void synchronizeStream(const Stream& s) const override {
    counts.waits++;
    wait_here(queue_of(s.device_index(), s.id()).mark());
  }
  void synchronizeDevice(const DeviceIndex d) const override {
    counts.waits++;
    std::vector<MarkPtr> marks;
    {
      std::lock_guard<std::mutex> lock(world().mutex);
      for (auto& queue : world().queues[d < 0 ? current_device : d]) marks.push_back(queue->mark());
    }
    for (auto& mark : marks) wait_here(mark);
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}
  void record(void** event, const Stream& s, const DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event();
    static_cast<Event*>(*event)->mark = queue_of(s.device_index(), s.id()).mark();
  }
  void block(void* event, const Stream& s) const override {
    if (event != nullptr) queue_of(s.device_index(), s.id()).wait_for(static_cast<Event*>(event)->mark);
  }
  bool queryEvent(void* event) const override {
    counts.queries++;
    return event == nullptr || passed(static_cast<Event*>(event)->mark);
  }
  void synchronizeEvent(void* event) const override {
    counts.waits++;
    if (event != nullptr) wait_here(static_cast<Event*>(event)->mark);
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "an event that was never recorded");
    const MarkPtr from = static_cast<Event*>(start)->mark, to = static_cast<Event*>(end)->mark;
    TORCH_CHECK(from->device == to->device, "events of two devices");
    TORCH_CHECK(passed(from) && passed(to), "an event that the device has not passed");
    return static_cast<double>(to->ns - from->ns) / 1e6;
  }
};

// ---- memory

struct Stats {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};
std::mutex& stats_mutex = *new std::mutex();
Stats bytes_of[DEVICES], count_of[DEVICES];
int64_t ooms_of[DEVICES] = {};

void count_bytes(DeviceIndex device, int64_t bytes) {
  std::lock_guard<std::mutex> lock(stats_mutex);
  const auto add = [](Stats& stats, int64_t amount) {
    stats.current += amount;
    stats.peak = std::max(stats.peak, stats.current);
    (amount > 0 ? stats.allocated : stats.freed) += std::abs(amount);
  };
  add(bytes_of[device], bytes);
  add(count_of[device], bytes > 0 ? 1 : -1);
}

// Memory is freed for the counters when the host drops the tensor, as with a caching allocator on a stream; the bytes stay
// until the kernels that were launched before have run.
struct Block {
  std::shared_ptr<void> memory;
  DeviceIndex device;
  int64_t bytes;
};

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  count_bytes(block->device, -block->bytes);
  delete block;
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t asked) override {
    const DeviceIndex device = current_device;
    if (asked == 0) return {nullptr, nullptr, &free_block, Device(SIM, device)};
    const auto bytes = static_cast<int64_t>((asked + BLOCK - 1) / BLOCK * BLOCK);
    if (bytes_of[device].current + bytes > static_cast<int64_t>(CAPACITY)) {
      ooms_of[device]++;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "sim:", int(device), " is out of memory: ", asked, " bytes");
    }
    void* memory = aligned_alloc(64, static_cast<size_t>(bytes));
    auto* block = new Block{std::shared_ptr<void>(memory, free), device, bytes};
    count_bytes(device, bytes);
    return {memory, block, &free_block, Device(SIM, device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { memcpy(to, from, bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(stats_mutex);
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto fill = [](auto& of, const Stats& from) {
      of[0].current = from.current;
      of[0].peak = from.peak;
      of[0].allocated = from.allocated;
      of[0].freed = from.freed;
    };
    for (auto* of : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes})
      fill(*of, bytes_of[device]);
    for (auto* of : {&stats.allocation, &stats.active, &stats.segment}) fill(*of, count_of[device]);
    stats.num_ooms = ooms_of[device];
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(stats_mutex);
    for (auto* of : {&bytes_of[device], &count_of[device]}) of->allocated = of->freed = 0;
  }
  void resetPeakStats(DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(stats_mutex);
    for (auto* of : {&bytes_of[device], &count_of[device]}) of->peak = of->current;
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(stats_mutex);
    return {CAPACITY - static_cast<size_t>(bytes_of[device].current), CAPACITY};
  }
};
Allocator& allocator() {
  static auto* made = new Allocator();
  return *made;
}

std::mutex& pinned_mutex = *new std::mutex();
std::set<const void*>& pinned = *new std::set<const void*>();
void free_pinned(void* memory) {
  std::lock_guard<std::mutex> lock(pinned_mutex);
  pinned.erase(memory);
  free(memory);
}
struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned.insert(memory);
    return {memory, memory, &free_pinned, Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override { memcpy(to, from, bytes); }
};
bool is_pinned(const void* memory) {
  std::lock_guard<std::mutex> lock(pinned_mutex);
  return pinned.count(memory) > 0;
}

// ---- random numbers: a generator per device; each kernel that draws gets one of its own, seeded from it

struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(DeviceIndex index) {
    device_ = Device(SIM, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};
const at::Generator& default_generator(DeviceIndex index) {
  static auto* made = [] {
    auto* all = new std::vector<at::Generator>();
    for (DeviceIndex i = 0; i < DEVICES; ++i) all->push_back(at::make_generator<Generator>(i));
    return all;
  }();
  return made->at(static_cast<size_t>(index < 0 ? current_device : index));
}
at::Generator generator_for_kernel(const std::optional<at::Generator>& given, DeviceIndex device) {
  at::Generator from = given.has_value() && given->defined() ? *given : default_generator(device);
  std::lock_guard<std::mutex> lock(from.mutex());
  return at::make_generator<at::CPUGeneratorImpl>(static_cast<at::CPUGeneratorImpl*>(from.unsafeGetGeneratorImpl())->random64());
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return DEVICES; }
  void setCurrentDevice(DeviceIndex d) const override { current_device = d; }
  DeviceIndex getCurrentDevice() const override { return current_device; }
  DeviceIndex exchangeDevice(DeviceIndex d) const override { return std::exchange(current_device, d); }
  DeviceIndex maybeExchangeDevice(DeviceIndex d) const override {
    return d < 0 ? current_device : std::exchange(current_device, d);
  }
  const at::Generator& getDefaultGenerator(DeviceIndex d) const override { return default_generator(d); }
  at::Generator getNewGenerator(DeviceIndex d) const override {
    return at::make_generator<Generator>(d < 0 ? current_device : d);
  }
  Device getDeviceFromPtr(void*) const override { return Device(SIM, current_device); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto* made = new PinnedAllocator();
    return made;
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    if (bytes <= storage.nbytes()) return;
    const Device device = storage.device();
    wait_current(device.index());  // what is copied must be there
    c10::DeviceGuard guard(device);
    auto wider = allocator().allocate(bytes);
    if (storage.nbytes() > 0) memcpy(wider.get(), storage.data(), storage.nbytes());
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(wider));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

// ---- tensors

// A tensor of the device as its kernels see it: the same bytes, on the host, kept until the kernel has run.
struct Seen {
  std::shared_ptr<void> memory;
  void* data = nullptr;
  std::vector<int64_t> sizes, strides;
  c10::ScalarType dtype = c10::ScalarType::Float;
  bool defined = false, conjugate = false, negative = false;
  at::Tensor host;  // a copy of a tensor that lies on the host
  c10::DeviceIndex device = -1;

  at::Tensor view() const {
    if (!defined) return {};
    if (host.defined()) return host;
    at::Tensor made = data == nullptr
        ? at::empty_strided(sizes, strides, at::TensorOptions().dtype(dtype).device(c10::kCPU))
        : at::from_blob(data, sizes, strides, [kept = memory](void*) {}, at::TensorOptions().dtype(dtype).device(c10::kCPU));
    made._set_conj(conjugate);
    made._set_neg(negative);
    return made;
  }
};

bool on_sim(const at::Tensor& t) { return t.defined() && t.device().type() == SIM; }

Seen see(const at::Tensor& t) {
  Seen seen;
  seen.defined = t.defined();
  if (!seen.defined) return seen;
  if (!on_sim(t)) {
    seen.host = t.clone();
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) seen.host.unsafeGetTensorImpl()->set_wrapped_number(true);
    return seen;
  }
  auto* block = static_cast<Block*>(t.storage().data_ptr().get_context());
  if (block != nullptr) seen.memory = block->memory;
  seen.data = t.storage().data_ptr().get() == nullptr
      ? nullptr
      : static_cast<char*>(t.storage().mutable_data_ptr().get()) + t.storage_offset() * static_cast<int64_t>(t.itemsize());
  seen.sizes = t.sizes().vec();
  seen.strides = t.strides().vec();
  seen.dtype = t.scalar_type();
  seen.conjugate = t.is_conj();
  seen.negative = t.is_neg();
  seen.device = t.device().index();
  return seen;
}

at::Tensor make_empty(
    c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>, std::optional<Device> device,
    std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  c10::DeviceGuard guard(device.value_or(Device(SIM, current_device)));
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(sizes, &allocator(), keys, c10::dtype_or_default(dtype), format);
}
at::Tensor make_strided(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
    std::optional<Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(device.value_or(Device(SIM, current_device)));
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(sizes, strides, &allocator(), keys, c10::dtype_or_default(dtype));
}
at::Tensor like(const at::Tensor& shaped, DeviceIndex device) {
  return make_strided(shaped.sizes(), shaped.strides(), shaped.scalar_type(), {}, Device(SIM, device), {});
}

int64_t copy_ns(const at::Tensor& t) {
  return 1'000 + static_cast<int64_t>(t.nbytes()) * 1'000 / COPY_BYTES_PER_US;
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.is_same(from) || to.numel() == 0) return to;
  const bool across = to.device().type() != from.device().type();
  if (!across) {
    Queue& source = current_queue(from.device().index());
    Queue& target = current_queue(to.device().index());
    if (&source != &target) source.wait_for(target.mark());
    const int64_t length = to.device() == from.device() ? -1 : copy_ns(to);
    source.launch([a = see(to), b = see(from)] { a.view().copy_(b.view().expand(a.sizes)); }, length);
    if (&source != &target) target.wait_for(source.mark());
    return to;
  }
  const at::Tensor& host = on_sim(to) ? from : to;
  const DeviceIndex device = (on_sim(to) ? to : from).device().index();
  const bool fixed = is_pinned(host.storage().data());
  Queue& queue = current_queue(device);
  if (on_sim(to)) {
    const at::Tensor source = fixed && non_blocking ? from : from.clone();
    queue.launch([a = see(to), source] { a.view().copy_(source.expand(a.sizes)); }, copy_ns(to));
    if (!non_blocking) wait_current(device);
  } else {
    queue.launch([b = see(from), to] { at::Tensor target = to; target.copy_(b.view().expand(target.sizes())); }, copy_ns(to));
    if (!(fixed && non_blocking)) wait_current(device);
  }
  return to;
}
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  at::Tensor target = to;
  return copy(target, from, non_blocking);
}
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar read_scalar(const at::Tensor& t) {
  wait_current(t.device().index());
  return see(t).view().item();
}

// ---- every other operator: its CPU kernel, behind the queue

template <typename Change>
void change_tensors(IValue& value, const Change& change) {
  if (value.isTensor()) {
    value = change(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorList()) list.push_back(change(t));
    value = list;
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorList())
      list.push_back(t.has_value() ? std::optional<at::Tensor>(change(*t)) : std::nullopt);
    value = list;
  } else if (value.isList() && !value.toListRef().empty() && value.toListRef()[0].isTensor()) {
    auto list = value.toList().copy();
    for (size_t i = 0; i < list.size(); ++i) list.set(i, change(list.get(i).toTensor()));
    value = list;
  }
}

const c10::OperatorHandle& operator_named(const char* name) {
  static std::mutex own;
  static auto* found = new std::map<std::string, c10::OperatorHandle>();
  std::lock_guard<std::mutex> lock(own);
  auto at = found->find(name);
  if (at == found->end()) at = found->emplace(name, c10::Dispatcher::singleton().findSchemaOrThrow(name, "")).first;
  return at->second;
}

// Convolutions of a device that torch does not know have names of their own; the CPU's have other arguments.
const c10::OperatorHandle& cpu_operator(const c10::OperatorHandle& op, Stack& arguments) {
  const std::string& name = op.schema().name();
  if (name == "aten::convolution_overrideable") return operator_named("aten::convolution");
  if (name != "aten::convolution_backward_overrideable") return op;
  const at::Tensor weight = arguments[2].toTensor();
  const bool transposed = arguments[6].toBool();
  const int64_t channels = transposed ? weight.size(1) * arguments[8].toInt() : weight.size(0);
  arguments.insert(arguments.begin() + 3, IValue(std::vector<int64_t>{channels}));
  return operator_named("aten::convolution_backward");
}

void run(const c10::OperatorHandle& called, Stack* stack) {
  const auto& schema = called.schema();
  const size_t taken = schema.arguments().size();
  Stack arguments = torch::jit::pop(*stack, taken);
  DeviceIndex device = -1;
  bool draws = false;
  for (IValue& value : arguments) {
    change_tensors(value, [&](const at::Tensor& t) {
      if (device < 0 && on_sim(t)) device = t.device().index();
      return t;
    });
    if (device < 0 && value.isDevice() && value.toDevice().type() == SIM) device = value.toDevice().index();
  }
  if (device < 0) device = current_device;
  // Results that are arguments (out=, in place), by the place of the argument.
  std::vector<int> given(schema.returns().size(), -1);
  bool in_place = !schema.returns().empty(), has_out = false;
  for (size_t r = 0; r < given.size(); ++r) {
    const auto* alias = schema.returns()[r].alias_info();
    for (size_t a = 0; alias != nullptr && a < taken; ++a) {
      const auto* of = schema.arguments()[a].alias_info();
      if (of != nullptr && of->isWrite() && *of == *alias) given[r] = static_cast<int>(a);
    }
    in_place = in_place && given[r] == 0;
  }
  for (const auto& argument : schema.arguments()) has_out = has_out || argument.is_out();
  Stack host = arguments;
  for (size_t a = 0; a < taken; ++a) {
    const auto& type = schema.arguments()[a].real_type();
    if (host[a].isDevice()) host[a] = Device(c10::kCPU);
    if (host[a].isGenerator() || (type->str().find("Generator") != std::string::npos)) {
      std::optional<at::Generator> user;
      if (host[a].isGenerator()) user = host[a].toGenerator();
      host[a] = generator_for_kernel(user, device);
      draws = true;
    }
  }
  const c10::OperatorHandle& op = cpu_operator(called, host);

  // The shapes of the results, by torch's own meta kernels.
  Stack shapes;
  bool shaped = in_place || schema.returns().empty();
  const bool random = !draws && op.hasTag(at::Tag::nondeterministic_seeded);
  if (!shaped && !random) {
    shapes = host;
    for (IValue& value : shapes) {
      if (value.isDevice()) value = Device(c10::kMeta);
      if (value.isGenerator()) value = IValue();
      change_tensors(value, [](const at::Tensor& t) {
        if (!on_sim(t)) return t;
        at::Tensor meta = at::empty_strided(t.sizes(), t.strides(), t.options().device(c10::kMeta));
        meta._set_conj(t.is_conj());
        meta._set_neg(t.is_neg());
        return meta;
      });
    }
    try {
      at::AutoDispatchBelowADInplaceOrView below;
      op.callBoxed(&shapes);
      shaped = true;
    } catch (const std::exception&) {
    }
  }

  std::vector<IValue> results(given.size());
  std::vector<IValue> fresh(given.size());  // what the kernel's own results are copied into
  const auto place = [&](const std::vector<IValue>& like_these, bool values) {
    for (size_t r = 0; r < given.size(); ++r) {
      if (given[r] >= 0) {
        results[r] = arguments[static_cast<size_t>(given[r])];
        if (has_out && results[r].isTensor() && on_sim(results[r].toTensor()) && like_these[r].isTensor() &&
            results[r].toTensor().sizes() != like_these[r].toTensor().sizes())
          results[r].toTensor().resize_(like_these[r].toTensor().sizes());
        continue;
      }
      IValue made = like_these[r];
      change_tensors(made, [&](const at::Tensor& t) {
        if (!t.defined()) return t;
        at::Tensor on = like(t, device);
        if (values) see(on).view().copy_(t);
        return on;
      });
      results[r] = fresh[r] = made;
    }
  };
  const auto seen_from_host = [](const IValue& from) {  // the same value with host tensors on the same bytes
    IValue value = from;
    change_tensors(value, [](const at::Tensor& t) { return see(t).view(); });
    return value;
  };

  if (!shaped) {  // nonzero and its kind; and what draws from the CPU's own generator
    counts.unshaped++;
    {
      std::lock_guard<std::mutex> lock(unshaped_mutex);
      unshaped_names.insert(schema.name());
    }
    wait_current(device);
    Stack here = host;
    for (IValue& value : here) value = seen_from_host(value);
    at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(&here);
    place(std::vector<IValue>(here.begin(), here.end()), true);
  } else {
    place(in_place ? std::vector<IValue>(given.size()) : std::vector<IValue>(shapes.begin(), shapes.end()), false);
    // An operator with out= may give it another shape while it runs (mse_loss does): it gets a copy for that.
    std::vector<size_t> copied;
    for (size_t r = 0; has_out && r < given.size(); ++r)
      if (given[r] >= 0 && results[r].isTensor()) {
        fresh[r] = host[static_cast<size_t>(given[r])] = results[r];
        copied.push_back(static_cast<size_t>(given[r]));
      }
    for (IValue& value : host) value = seen_from_host(value);
    std::vector<IValue> into;
    for (const IValue& value : fresh) into.push_back(seen_from_host(value));
    current_queue(device).launch([op, host = std::move(host), into = std::move(into), copied = std::move(copied)]() mutable {
      Stack here = host;
      for (size_t a : copied) here[a] = here[a].toTensor().clone();
      op.callBoxed(&here);
      for (size_t r = 0; r < into.size(); ++r) {
        if (into[r].isTensor() && into[r].toTensor().defined()) {
          const at::Tensor made = here[r].toTensor();
          // A gradient that nobody needs is undefined; the saved statistics of batch_norm are empty in evaluation.
          made.defined() && (made.numel() > 0 || into[r].toTensor().numel() == 0) ? into[r].toTensor().copy_(made)
                                                                                  : into[r].toTensor().zero_();
        } else if (into[r].isTensorList()) {
          const auto from = here[r].toTensorList();
          const auto to = into[r].toTensorList();
          for (size_t i = 0; i < to.size(); ++i) to.get(i).copy_(from.get(i));
        }
      }
    });
  }
  for (IValue& value : results) stack->push_back(std::move(value));
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<c10::MemoryFormat> format) {
  return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(size), format);
}
at::Tensor as_strided(
    const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  std::optional<int64_t> at_offset;
  if (offset.has_value()) at_offset = offset->guard_int(__FILE__, __LINE__);
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), at_offset);
}
at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}
at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}
at::Tensor& set_storage(
    at::Tensor& self, c10::Storage storage, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return self;
}
void record_stream(at::Tensor&, Stream) {}

// The CPU's draws from the CPU's own generator.
std::tuple<at::Tensor, at::Tensor> dropout(const at::Tensor& x, double p, std::optional<bool> train) {
  at::Tensor kept = at::empty_strided(x.sizes(), x.strides(), x.options());
  if (train.value_or(true)) {
    kept.bernoulli_(1 - p);
    return {x.mul(kept).mul_(p == 1 ? 0.0 : 1 / (1 - p)), kept.to(at::kBool)};
  }
  return {x.clone(), kept.fill_(1).to(at::kBool)};
}

at::Tensor random_state(int64_t device) {
  at::Generator generator = default_generator(static_cast<DeviceIndex>(device));
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}
void set_random_state(int64_t device, const at::Tensor& state) {
  at::Generator generator = default_generator(static_cast<DeviceIndex>(device));
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", make_empty);
  m.impl("empty_strided", make_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("resize_", resize);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("copy_", copy);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", read_scalar);
  m.impl("record_stream", record_stream);
  m.impl("native_dropout", dropout);
  // torch has kernels for these two that only raise
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&run>());
  m.impl("convolution_backward_overrideable", torch::CppFunction::makeFromBoxedFunction<&run>());
}

TORCH_LIBRARY(sim, m) {
  m.def("random_state(int device) -> Tensor", random_state);
  m.def("set_random_state(int device, Tensor state) -> ()", set_random_state);
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// ---- for Python, by ctypes

extern "C" {
void sim_start() {
  static bool started = false;
  if (std::exchange(started, true)) return;
  world();
  c10::SetAllocator(SIM, &allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks());
}
int sim_device_count() { return DEVICES; }
int sim_current_device() { return current_device; }
void sim_set_device(int device) { current_device = static_cast<DeviceIndex>(device); }
// A kernel of exactly this length on the current stream of a device.
void sim_sleep(int device, int64_t ns) {
  current_queue(static_cast<DeviceIndex>(device < 0 ? current_device : device)).launch(nullptr, ns);
}
// The streams of a device stand still from `hold` to `release`: what is launched meanwhile then runs without a gap.
static bool held = false;
void sim_hold(int device) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    held = true;
  }
  current_queue(static_cast<DeviceIndex>(device)).push([](Queue& queue) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [] { return !held; });
    queue.free_ns = std::max(queue.free_ns, now_ns());
  });
}
void sim_release() {
  std::lock_guard<std::mutex> lock(mutex);
  held = false;
  changed.notify_all();
}
// The clock stands still from `stop` to `start`, but for `advance` and waits.
void sim_stop_clock() { stopped_ns = now_ns(); }
void sim_advance(int64_t ns) { sleep_until(now_ns() + ns); }
int64_t sim_now() { return now_ns(); }
// The host's clock may be behind the stopped one: all streams are free at once.
void sim_start_clock() {
  std::vector<MarkPtr> marks;
  {
    std::lock_guard<std::mutex> lock(world().mutex);
    for (auto& queues : world().queues)
      for (auto& queue : queues) {
        marks.push_back(queue->mark());
        queue->push([](Queue& emptied) { emptied.free_ns = 0; });
      }
  }
  for (auto& mark : marks) wait_here(mark);
  stopped_ns = RUNNING;
}
void sim_seed(int64_t seed) {
  for (DeviceIndex i = 0; i < DEVICES; ++i) {
    at::Generator generator = default_generator(i);
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(static_cast<uint64_t>(seed));
  }
}
void sim_kernel_ns(int64_t ns) { kernel_ns = ns; }
int64_t sim_waits() { return counts.waits; }
int64_t sim_queries() { return counts.queries; }
int64_t sim_kernels() { return counts.kernels; }
int64_t sim_unshaped() { return counts.unshaped; }
const char* sim_unshaped_names() {
  static std::string joined;
  std::lock_guard<std::mutex> lock(unshaped_mutex);
  joined.clear();
  for (const auto& name : unshaped_names) joined += name + " ";
  return joined.c_str();
}
}
