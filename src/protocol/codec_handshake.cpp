// The messages of the two handshakes (control link, data stream), to and from the wire.
#include <algorithm>

#include "base/codes.h"
#include "base/try.h"
#include "protocol/wire_values.h"

namespace kvferry::protocol {
namespace {

void put_bits(const Bits128& bits, wire::Bits128& out) {
  out.set_high(bits.high);
  out.set_low(bits.low);
}
Bits128 get_bits(const wire::Bits128& in) { return {in.high(), in.low()}; }
Incarnation get_incarnation(const wire::Bits128& in) {
  Incarnation incarnation;
  incarnation.high = in.high();
  incarnation.low = in.low();
  return incarnation;
}

void put_identity(const Identity& identity, wire::Identity& out) {
  const std::string_view instance = cut_text(identity.instance);
  out.set_instance(instance.data(), instance.size());
  out.set_dp(identity.place.dp);
  out.set_tp(identity.place.tp);
  out.set_pp(identity.place.pp);
  out.set_cp(identity.place.cp);
  put_bits(identity.incarnation, *out.mutable_incarnation());
  out.set_start_number(identity.start_number);
}
Result<Identity> get_identity(const wire::Identity& in) {
  KVF_TRY(instance, read_text(in.instance(), "the name of an instance"));
  return Identity{.instance = std::move(instance),
                  .place = {.dp = in.dp(), .tp = in.tp(), .pp = in.pp(), .cp = in.cp()},
                  .incarnation = get_incarnation(in.incarnation()),
                  .start_number = in.start_number()};
}

void put_shape(const layout::Shape& shape, wire::Shape& out) {
  const std::string_view dtype = cut_text(shape.format.dtype);
  out.set_dtype(dtype.data(), dtype.size());
  out.set_page_tokens(shape.format.page_tokens);
  out.set_layers(shape.format.layers);
  out.set_kv_heads(shape.format.kv_heads);
  out.set_head_dim(shape.format.head_dim);
  out.set_mla(shape.format.mla);
  out.set_tp(shape.parallel.tp);
  out.set_dp(shape.parallel.dp);
  out.set_pp(shape.parallel.pp);
  out.set_cp_more(shape.parallel.cp - 1);
  out.set_order(static_cast<std::uint32_t>(shape.format.order));
  out.set_kv_joined(shape.format.kv_joined);
  out.set_first_layer(shape.first_layer);
  put_list<std::uint64_t>(shape.kv_item_bytes, *out.mutable_kv_item_bytes());
  put_list<std::uint64_t>(shape.aux_item_bytes, *out.mutable_aux_item_bytes());
  for (const layout::StateShape& component : shape.state) {
    out.add_state_counts(static_cast<std::uint32_t>(component.item_bytes.size()));
    put_list<std::uint64_t>(component.item_bytes, *out.mutable_state_item_bytes());
  }
  std::string names;
  for (std::uint32_t i = 0; i < shape.state.size(); ++i) {
    if (i > 0) names += ',';
    names += shape.state[i].name;
    if (shape.state[i].optional) out.add_state_optional(i);
  }
  if (names.size() + 1 > shape.state.size()) out.set_state_names(names);
}
// One text for all names, so that a short body cannot ask for many small allocations.
Result<std::vector<layout::StateShape>> get_states(const wire::Shape& in) {
  KVF_TRY(lists, get_lists(in.state_counts(), in.state_item_bytes(), "Shape"));
  std::vector<layout::StateShape> states(lists.size());
  for (std::size_t i = 0; i < states.size(); ++i) states[i].item_bytes = std::move(lists[i]);
  for (const std::uint32_t number : in.state_optional()) {
    if (number >= states.size()) return cannot_be("a Shape marks state component " + std::to_string(number));
    states[number].optional = true;
  }
  if (in.state_names().empty()) return states;
  KVF_TRY(names, read_text(in.state_names(), "the names of state components"));
  const auto count = static_cast<std::size_t>(std::ranges::count(names, ',')) + 1;
  if (count != states.size()) {
    return cannot_be("a Shape has " + std::to_string(states.size()) + " state components and " + std::to_string(count) +
                     " names for them");
  }
  std::size_t begin = 0;
  for (layout::StateShape& state : states) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    state.name = names.substr(begin, end - begin);
    begin = end + 1;
  }
  return states;
}
Result<layout::Shape> get_shape(const wire::Shape& in) {
  KVF_TRY(dtype, read_text(in.dtype(), "the dtype of a Shape"));
  KVF_TRY(state, get_states(in));
  if (in.order() > static_cast<std::uint32_t>(PageOrder::head_token_dim)) {
    return Error{Code::protocol, "a Shape has pages of order " + std::to_string(in.order()) + ", which is not known"};
  }
  return layout::Shape{.format = {.dtype = std::move(dtype),
                                  .page_tokens = in.page_tokens(),
                                  .layers = in.layers(),
                                  .kv_heads = in.kv_heads(),
                                  .head_dim = in.head_dim(),
                                  .mla = in.mla(),
                                  .order = static_cast<PageOrder>(in.order()),
                                  .kv_joined = in.kv_joined()},
                       .parallel = {.tp = in.tp(), .dp = in.dp(), .pp = in.pp(), .cp = in.cp_more() + 1},
                       .first_layer = in.first_layer(),
                       .kv_item_bytes = get_list(in.kv_item_bytes()),
                       .aux_item_bytes = get_list(in.aux_item_bytes()),
                       .state = std::move(state)};
}

void put_same_host(const SameHost& same_host, wire::SameHost& out) {
  out.set_pid(same_host.pid);
  out.set_nonce_address(same_host.nonce_address);
  put_bits(same_host.nonce, *out.mutable_nonce());
}
SameHost get_same_host(const wire::SameHost& in) {
  return {.pid = in.pid(), .nonce_address = in.nonce_address(), .nonce = get_bits(in.nonce())};
}

// One text for all names, so that a short body cannot ask for many small allocations.
std::string join_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ',';
    text += name;
  }
  return text;
}
Result<std::vector<std::string>> split_names(const std::string& text) {
  std::vector<std::string> names;
  if (text.empty()) return names;
  if (text.size() > text_bytes_max || std::ranges::count(text, ',') >= transports_max) {
    return cannot_be("a list of more than " + std::to_string(transports_max) + " transports");
  }
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    if (names.back().empty()) return cannot_be("a transport without a name in \"" + text + "\"");
    begin = end + 1;
  }
  return names;
}

void put_regions(const std::vector<RemoteRegion>& regions, wire::RemoteRegions& out) {
  const int count = static_cast<int>(regions.size());
  out.mutable_component()->Reserve(count);
  out.mutable_base()->Reserve(count);
  out.mutable_length()->Reserve(count);
  out.mutable_item_bytes()->Reserve(count);
  out.mutable_shared()->Reserve(count);
  out.mutable_shared_offset()->Reserve(count);
  for (const RemoteRegion& region : regions) {
    out.add_component(region.component);
    out.add_base(region.base);
    out.add_length(region.length);
    out.add_item_bytes(region.item_bytes);
    out.add_shared(region.shared);
    out.add_shared_offset(region.shared_offset);
  }
}
Result<std::vector<RemoteRegion>> get_regions(const wire::RemoteRegions& in) {
  const int count = in.component_size();
  if (in.base_size() != count || in.length_size() != count || in.item_bytes_size() != count ||
      in.shared_size() != count || in.shared_offset_size() != count) {
    return cannot_be("the columns of a Welcome's regions differ in length");
  }
  std::vector<RemoteRegion> regions(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    regions[static_cast<std::size_t>(i)] = {.component = in.component(i),
                                            .base = in.base(i),
                                            .length = in.length(i),
                                            .item_bytes = in.item_bytes(i),
                                            .shared = in.shared(i),
                                            .shared_offset = in.shared_offset(i)};
  }
  return regions;
}

}  // namespace

Result<std::string> read_text(const std::string& in, const char* what) {
  if (in.size() > text_bytes_max) {
    return cannot_be(std::string(what) + " has " + std::to_string(in.size()) + " bytes; at most " +
                     std::to_string(text_bytes_max) + " can be");
  }
  return in;
}

Result<Code> read_code(std::uint32_t in) {
  if (in >= codes.size()) return cannot_be("error code " + std::to_string(in) + " is not known to this version");
  return static_cast<Code>(in);
}

void to_wire(const Hello& value, wire::WireMessage& out) {
  wire::Hello& hello = *out.mutable_hello();
  hello.set_version(value.version);
  hello.set_version_min(value.version_min);
  put_identity(value.identity, *hello.mutable_identity());
  put_bits(value.nonce, *hello.mutable_nonce());
}
Result<Message> from_wire(const wire::Hello& in) {
  KVF_TRY(identity, get_identity(in.identity()));
  return Message(Hello{.version = in.version(),
                       .version_min = in.version_min(),
                       .identity = std::move(identity),
                       .nonce = get_bits(in.nonce())});
}

void to_wire(const Challenge& value, wire::WireMessage& out) {
  wire::Challenge& challenge = *out.mutable_challenge();
  challenge.set_version(value.version);
  put_identity(value.identity, *challenge.mutable_identity());
  put_bits(value.nonce, *challenge.mutable_nonce());
  challenge.set_proof(value.proof);
  put_shape(value.shape, *challenge.mutable_shape());
}
Result<Message> from_wire(const wire::Challenge& in) {
  KVF_TRY(identity, get_identity(in.identity()));
  KVF_TRY(proof, read_text(in.proof(), "the proof of a Challenge"));
  KVF_TRY(shape, get_shape(in.shape()));
  return Message(Challenge{.version = in.version(),
                           .identity = std::move(identity),
                           .nonce = get_bits(in.nonce()),
                           .proof = std::move(proof),
                           .shape = std::move(shape)});
}

void to_wire(const Proof& value, wire::WireMessage& out) {
  wire::Proof& proof = *out.mutable_proof();
  proof.set_proof(value.proof);
  put_shape(value.shape, *proof.mutable_shape());
  proof.set_transports(join_names(value.transports));
  put_same_host(value.same_host, *proof.mutable_same_host());
}
Result<Message> from_wire(const wire::Proof& in) {
  KVF_TRY(proof, read_text(in.proof(), "the proof of a Proof"));
  KVF_TRY(shape, get_shape(in.shape()));
  KVF_TRY(transports, split_names(in.transports()));
  return Message(Proof{.proof = std::move(proof),
                       .shape = std::move(shape),
                       .transports = std::move(transports),
                       .same_host = get_same_host(in.same_host())});
}

void to_wire(const Welcome& value, wire::WireMessage& out) {
  wire::Welcome& welcome = *out.mutable_welcome();
  welcome.set_transports(join_names(value.transports));
  put_bits(value.stream_secret, *welcome.mutable_stream_secret());
  put_same_host(value.same_host, *welcome.mutable_same_host());
  welcome.set_memory_socket(value.memory_socket);
  put_regions(value.regions, *welcome.mutable_regions());
}
Result<Message> from_wire(const wire::Welcome& in) {
  KVF_TRY(transports, split_names(in.transports()));
  KVF_TRY(memory_socket, read_text(in.memory_socket(), "the memory socket of a Welcome"));
  KVF_TRY(regions, get_regions(in.regions()));
  return Message(Welcome{.transports = std::move(transports),
                         .stream_secret = get_bits(in.stream_secret()),
                         .same_host = get_same_host(in.same_host()),
                         .memory_socket = std::move(memory_socket),
                         .regions = std::move(regions)});
}

void to_wire(const Ready& value, wire::WireMessage& out) {
  out.mutable_ready()->set_transport(value.transport);
  const std::string_view detail = cut_text(value.detail);
  out.mutable_ready()->set_detail(detail.data(), detail.size());
}
Result<Message> from_wire(const wire::Ready& in) {
  KVF_TRY(transport, read_text(in.transport(), "the transport of a Ready"));
  KVF_TRY(detail, read_text(in.detail(), "the detail of a Ready"));
  return Message(Ready{.transport = std::move(transport), .detail = std::move(detail)});
}

void to_wire(const Linked&, wire::WireMessage& out) { out.mutable_linked(); }
Result<Message> from_wire(const wire::Linked&) { return Message(Linked{}); }

void to_wire(const Refuse& value, wire::WireMessage& out) {
  out.mutable_refuse()->set_code(static_cast<std::uint32_t>(value.code));
  const std::string_view text = cut_text(value.text);
  out.mutable_refuse()->set_text(text.data(), text.size());
}
Result<Message> from_wire(const wire::Refuse& in) {
  KVF_TRY(code, read_code(in.code()));
  KVF_TRY(text, read_text(in.text(), "the reason of a Refuse"));
  return Message(Refuse{.code = code, .text = std::move(text)});
}

void to_wire(const Join& value, wire::WireMessage& out) {
  wire::Join& join = *out.mutable_join();
  put_bits(value.decode, *join.mutable_decode());
  put_bits(value.prefill, *join.mutable_prefill());
  put_bits(value.nonce, *join.mutable_nonce());
}
Result<Message> from_wire(const wire::Join& in) {
  return Message(Join{
      .decode = get_incarnation(in.decode()), .prefill = get_incarnation(in.prefill()), .nonce = get_bits(in.nonce())});
}

void to_wire(const JoinChallenge& value, wire::WireMessage& out) {
  put_bits(value.nonce, *out.mutable_join_challenge()->mutable_nonce());
  out.mutable_join_challenge()->set_proof(value.proof);
}
Result<Message> from_wire(const wire::JoinChallenge& in) {
  KVF_TRY(proof, read_text(in.proof(), "the proof of a JoinChallenge"));
  return Message(JoinChallenge{.nonce = get_bits(in.nonce()), .proof = std::move(proof)});
}

void to_wire(const JoinProof& value, wire::WireMessage& out) { out.mutable_join_proof()->set_proof(value.proof); }
Result<Message> from_wire(const wire::JoinProof& in) {
  KVF_TRY(proof, read_text(in.proof(), "the proof of a JoinProof"));
  return Message(JoinProof{.proof = std::move(proof)});
}

}  // namespace kvferry::protocol
