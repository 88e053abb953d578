/** Lines and events of an answer that comes in parts. */

import type { StreamEvent } from "./types.js";

/** The lines of an answer. The last one has no end if the answer broke off. */
export async function* linesOf(parts: AsyncIterable<Uint8Array>): AsyncGenerator<{ text: string; isWhole: boolean }, void, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const part of parts) {
    const lines = (rest + decoder.decode(part, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const text of lines) yield { text, isWhole: true };
  }
  if (rest !== "") yield { text: rest, isWhole: false };
}

/** The server-sent events of an answer. One that broke off is left out: it has no empty line after it. */
export async function* eventsOf(parts: AsyncIterable<Uint8Array>): AsyncGenerator<StreamEvent, void, undefined> {
  let event = "";
  let data: string[] = [];
  for await (const { text } of linesOf(parts)) {
    const [, name, value = ""] = /^([^:]*):? ?(.*?)\r?$/s.exec(text) ?? [];
    if (name === "event") event = value;
    else if (name === "data") data.push(value);
    else if (name === "" && value === "" && !text.startsWith(":")) {
      if (data.length > 0) yield { event, data: JSON.parse(data.join("\n")) } as StreamEvent;
      event = "";
      data = [];
    }
  }
}
