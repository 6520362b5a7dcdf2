// Server-sent events of a reply. `fetch` reads them, for EventSource sends neither a body nor a key.

/** Yields {name, data} for each event; `name` is "message" where the event has none. */
export async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const event = parse(block);
        if (event !== null) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the reader may have failed, which has been thrown already
  }
}

/** Null: a comment, which keeps the connection open. */
function parse(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "event") name = value;
    if (field === "data") data.push(value);
  }
  return data.length ? { name, data: data.join("\n") } : null;
}
