// The prefill role: computes prompts chunk by chunk and sends each chunk's pages while the next one is computed.
#include <algorithm>
#include <list>
#include <unordered_map>
#include <utility>

#include "engine/group.h"

namespace kvferry::engine {
namespace {

struct Prompt {
  Request request;
  std::vector<std::int32_t> pages{};
  std::int32_t aux = -1;
  std::uint32_t computed = 0;    // tokens
  std::uint64_t sent_pages = 0;  // from the start of the request, prefix included
  bool init = false;
  bool layers_sent = false;  // of the last pages, all but the last one of each rank
  bool all_sent = false;
  bool told = false;  // that it ended
};

class Prefill final : public Worker {
 public:
  explicit Prefill(Group& group) : group_(group), parts_(group.parts()), logits_(parts_.options.model.vocab) {}

  void take(Request request) override {
    if (auto possible = check_request(parts_, request); !possible) {
      return say(failed_line(request.id, possible.error()));
    }
    group_.tell(order::Open{request.id, request.room, {}});
    prompts_.push_back(Prompt{std::move(request)});
  }

  void abort(std::uint64_t id) override {
    for (Prompt& prompt : prompts_) {
      if (prompt.request.id == id) group_.tell(order::Abort{id, "aborted by the engine"});
    }
  }

  void on_rooms_changed() override {
    group_.refresh();
    for (auto prompt = prompts_.begin(); prompt != prompts_.end();) {
      if (!prompt->told) advance(*prompt);
      // The memory may be read until the pages are released, whatever became of the room.
      const bool over = prompt->told && group_.view(prompt->request.id).released;
      if (over) give_back(*prompt);
      prompt = over ? prompts_.erase(prompt) : std::next(prompt);
    }
  }

  bool step() override {
    for (Prompt& prompt : prompts_) {
      if (prompt.told || prompt.computed == prompt.request.prompt.size() || !has_memory(prompt)) continue;
      advance(prompt);
      if (prompt.told || (parts_.options.layer_wise && !prompt.init)) continue;  // layers go as they are computed
      compute_chunk(prompt);
      advance(prompt);
      // The next one is the turn of another prompt.
      const auto same = std::ranges::find_if(prompts_, [&](const Prompt& p) { return &p == &prompt; });
      prompts_.splice(prompts_.end(), prompts_, same);
      return true;
    }
    return false;
  }

  int event_fd() const override { return group_.event_fd(); }
  std::string address() const override { return group_.manager().address(); }

 private:
  bool has_memory(Prompt& prompt) {
    if (prompt.aux >= 0) return true;
    if (parts_.aux.free_pages() == 0) return false;
    auto pages = parts_.pages.allocate(parts_.options.model.pages_for(prompt.request.prompt.size()));
    if (!pages) return false;  // waits for another prompt's release
    prompt.pages = std::move(*pages);
    prompt.aux = parts_.aux.allocate(1)->front();
    return true;
  }

  void give_back(Prompt& prompt) {
    group_.tell(order::Forget{prompt.request.id});
    if (prompt.aux < 0) return;
    parts_.pages.release(prompt.pages);
    parts_.aux.release({&prompt.aux, 1});
  }

  void compute_chunk(Prompt& prompt) {
    const auto& tokens = prompt.request.prompt;
    const auto end = std::min<std::uint32_t>(static_cast<std::uint32_t>(tokens.size()),
                                             prompt.computed + parts_.options.chunk_tokens);
    const bool last = end == tokens.size();
    order::Compute work{
        .runs = {{{tokens.begin() + prompt.computed, tokens.begin() + end}, prompt.computed, prompt.pages}}};
    const std::uint64_t ready = pages_ready(prompt, end);
    if (parts_.options.layer_wise && ready > prompt.sent_pages) {
      // The last layer of the last chunk is the end of the room, and the record goes with that.
      work.key = prompt.request.id;
      work.pages = {prompt.pages.begin() + static_cast<std::ptrdiff_t>(prompt.sent_pages),
                    prompt.pages.begin() + static_cast<std::ptrdiff_t>(ready)};
      work.hold_last_layer = last;
    }
    const std::span<float> logits = last ? std::span<float>(logits_) : std::span<float>();
    group_.tell(work, {&logits, 1});
    prompt.computed = end;
    if (work.key) {
      prompt.layers_sent = last;
      if (!last) prompt.sent_pages = ready;
    }
    if (last) record(prompt);
  }

  // What decode must know beside the pages, on every rank: it comes from the one that feeds a decode rank last.
  void record(const Prompt& prompt) {
    AuxRecord aux;
    aux.request_id = prompt.request.id;
    aux.room = prompt.request.room;
    aux.logits_checksum = checksum(logits_);
    aux.prompt_tokens = prompt.computed;
    aux.first_token = argmax(logits_);
    aux.computed_ns = monotonic_ns();
    group_.tell(order::Record{prompt.aux, aux});
  }

  // A page goes once all of its tokens are there; the last one, whole or not, with the end of the prompt.
  std::uint64_t pages_ready(const Prompt& prompt, std::uint32_t computed) const {
    const bool complete = computed == prompt.request.prompt.size();
    return complete ? prompt.pages.size() : computed / parts_.options.model.page_tokens;
  }

  // Sends what is computed and not sent yet, and tells the end.
  void advance(Prompt& prompt) {
    const std::uint64_t id = prompt.request.id;
    const RoomView room = group_.view(id);
    if (room.poll == Poll::failed) return end(prompt, room);
    if (room.poll == Poll::success) {
      prompt.told = true;
      const CacheShape whole = parts_.options.model.cache_shape(0, 0);
      const std::uint64_t bytes = (prompt.pages.size() - room.prefix_pages) * whole.page_bytes_everywhere();
      return say(done_line({prompt.request.id, {parts_.cache.aux(prompt.aux).first_token}, bytes}));
    }
    if (room.poll == Poll::bootstrapping || prompt.aux < 0 || prompt.all_sent) return;
    const std::uint64_t total = prompt.pages.size();
    if (!prompt.init) {
      prompt.sent_pages = std::min(total, room.prefix_pages);
      group_.tell(order::Init{.key = id, .num_pages = total - prompt.sent_pages, .aux = prompt.aux});
      prompt.init = true;
    }
    const bool complete = prompt.computed == prompt.request.prompt.size();
    const std::uint64_t ready = pages_ready(prompt, prompt.computed);
    if (ready <= prompt.sent_pages && !complete) return;
    const auto from = prompt.pages.begin() + static_cast<std::ptrdiff_t>(std::min(prompt.sent_pages, ready));
    const auto to = prompt.pages.begin() + static_cast<std::ptrdiff_t>(ready);
    group_.tell(order::Send{id, {from, to}, prompt.layers_sent});
    prompt.sent_pages = ready;
    prompt.all_sent = complete;
  }

  void end(Prompt& prompt, const RoomView& room) {
    prompt.told = true;
    say(failed_line(prompt.request.id, room.code, room.text));
  }

  Group& group_;
  Parts& parts_;
  std::vector<float> logits_;
  std::list<Prompt> prompts_{};  // in the order of their turns
};

}  // namespace

std::unique_ptr<Worker> make_prefill(Group& group) { return std::make_unique<Prefill>(group); }

}  // namespace kvferry::engine
