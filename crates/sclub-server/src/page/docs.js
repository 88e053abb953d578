"use strict";

function documentation(api) {
  const { el, short, count } = sclub;
  const VERBS = ["get", "put", "post", "delete", "patch", "head", "options"];
  const DEEP = 8;
  const SHOWN = 200000;

  // What a reference stands for, with what is written beside it; `null` if it leads nowhere.
  function resolved(thing, seen = []) {
    if (!thing?.$ref) return thing ?? null;
    if (seen.includes(thing.$ref) || !thing.$ref.startsWith("#/")) return null;
    const parts = thing.$ref.slice(2).split("/").map((part) => decodeURIComponent(part).replace(/~1/g, "/").replace(/~0/g, "~"));
    const target = parts.reduce((at, part) => (at !== null && typeof at === "object" && Object.hasOwn(at, part) ? at[part] : null), api);
    const { $ref, ...beside } = thing;
    const found = resolved(target, [...seen, $ref]);
    return found && { ...found, ...beside };
  }

  const nameOf = (thing) => thing?.$ref?.split("/").at(-1) ?? null;

  // All parts of an `allOf` as one schema.
  function merged(schema) {
    const found = resolved(schema);
    if (!found?.allOf) return found;
    const { allOf, ...own } = found;
    return [...allOf.map(merged), own].filter(Boolean).reduce((all, part) => ({
      ...all, ...part,
      properties: { ...all.properties, ...part.properties },
      required: [...(all.required ?? []), ...(part.required ?? [])],
    }), {});
  }

  const isNull = (schema) => schema?.type === "null";
  const choices = (schema) => schema?.oneOf ?? schema?.anyOf ?? null;

  function typeOf(schema) {
    const found = merged(schema);
    if (!found) return nameOf(schema) ?? "anything";
    if (found.const !== undefined) return JSON.stringify(found.const);
    if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(" | ");
    if (choices(found)) return choices(found).map((one) => (isNull(one) ? "null" : nameOf(one) ?? typeOf(one))).join(" | ");
    const types = [found.type ?? (found.properties ? "object" : "anything")].flat();
    return types.map((type) => {
      if (type === "array") return `array of ${found.prefixItems ? "fixed length" : nameOf(found.items) ?? typeOf(found.items)}`;
      if (type === "object" && found.additionalProperties && typeof found.additionalProperties === "object") return `object of ${typeOf(found.additionalProperties)}`;
      return type;
    }).join(" | ");
  }

  // `given`: in what is sent; there it matters what is needed and what is allowed.
  function limits(schema, given = true) {
    const number = (value) => (Number.isFinite(value) ? short(value, 6) : String(value));
    const names = [["minimum", "at least"], ["exclusiveMinimum", "above"], ["maximum", "at most"], ["exclusiveMaximum", "below"],
      ["minLength", "length at least"], ["maxLength", "length at most"], ["minItems", "entries at least"], ["maxItems", "entries at most"]];
    const parts = names.filter(([name]) => given && schema?.[name] !== undefined).map(([name, words]) => `${words} ${number(schema[name])}`);
    if (schema?.pattern) parts.push(`matching ${schema.pattern}`);
    if (given && schema?.default !== undefined && schema.default !== null) parts.push(`default ${JSON.stringify(schema.default)}`);
    return parts.join(", ");
  }

  // The schemas below one: what an array holds, what may be chosen, or none.
  function inner(schema) {
    const found = merged(schema);
    if (!found) return [];
    if (choices(found)) return choices(found).filter((one) => !isNull(one));
    if (found.prefixItems) return found.prefixItems;
    if (found.items && typeof found.items === "object") return [found.items];
    if (found.additionalProperties && typeof found.additionalProperties === "object") return [found.additionalProperties];
    return [];
  }

  function property(name, schema, needed, given, above) {
    const found = merged(schema) ?? {};
    const bounds = limits(found, given);
    return el("li", {},
      el("code", {}, name), " ", el("span", { class: "type" }, typeOf(schema)), bounds && el("span", { class: "type" }, `, ${bounds}`),
      given && needed && el("span", { class: "needed" }, " needed"),
      !given && !needed && el("span", { class: "type" }, ", may be missing"),
      found.description && el("p", { class: "text" }, found.description),
      shape(schema, given, above));
  }

  // The fields of a schema, nested; each reference is opened once on the way down.
  function shape(schema, given, above = []) {
    const name = nameOf(schema);
    if ((name && above.includes(name)) || above.length > DEEP) return null;
    const below = [...above, name ?? ""];
    const found = merged(schema);
    if (!found) return null;
    const fields = Object.entries(found.properties ?? {});
    const needed = new Set(found.required ?? []);
    const own = fields.length ? el("ul", { class: "schema" }, fields.map(([field, of]) => property(field, of, needed.has(field), given, below))) : null;
    const others = inner(schema);
    const several = choices(found) && others.length > 1;
    const rest = others.map((one, n) => {
      const opened = shape(one, given, below);
      if (!several) return opened;
      return el("li", {}, el("span", { class: "type" }, `${n ? "or" : "either"} ${nameOf(one) ?? typeOf(one)}`), merged(one)?.description && el("p", { class: "text" }, merged(one).description), opened);
    });
    return [own, several ? el("ul", { class: "schema" }, rest) : rest];
  }

  function stated(thing) {
    if (thing?.example !== undefined) return thing.example;
    if (Array.isArray(thing?.examples)) return thing.examples[0];
    if (thing?.examples) return resolved(Object.values(thing.examples)[0])?.value;
    return thing?.default ?? undefined;
  }

  // An example as stated, else made up from the schema.
  function example(schema, above = []) {
    const found = merged(schema);
    const name = nameOf(schema);
    if (!found || (name && above.includes(name)) || above.length > DEEP) return null;
    const below = [...above, name ?? ""];
    const said = stated(found);
    if (said !== undefined) return said;
    if (found.const !== undefined) return found.const;
    if (found.enum) return found.enum[0];
    if (choices(found)) return example(choices(found).find((one) => !isNull(one)), below);
    const type = [found.type ?? (found.properties ? "object" : null)].flat().find((one) => one !== "null");
    if (type === "object") {
      return Object.fromEntries(Object.entries(found.properties ?? {}).map(([field, of]) => [field, example(of, below)]));
    }
    if (type === "array") return found.prefixItems ? found.prefixItems.map((one) => example(one, below)) : [example(found.items, below)];
    if (type === "integer") return Math.max(found.minimum ?? 1, 1);
    if (type === "number") return 0.5;
    if (type === "boolean") return true;
    return type === "string" ? "text" : null;
  }

  // An example of a request: of what may be left out only what is stated.
  function lean(schema) {
    const found = merged(schema);
    const made = example(schema);
    if (!found?.properties || stated(found) !== undefined || made === null || typeof made !== "object") return made;
    const needed = new Set(found.required ?? []);
    const kept = Object.entries(made).filter(([field]) => needed.has(field) || (stated(merged(found.properties[field])) ?? null) !== null);
    return Object.fromEntries(kept.length ? kept : Object.entries(made));
  }

  function exampleOf(media, request) {
    const said = stated(media);
    if (said !== undefined) return said;
    return request ? lean(media?.schema) : example(media?.schema);
  }

  function asText(value, type) {
    if (typeof value === "string") return value;
    if (value === null || value === undefined) return "";
    if (/ndjson|jsonl|json-seq/.test(type)) return [value].flat().map((line) => JSON.stringify(line)).join("\n");
    return pretty(value);
  }

  // JSON with short lists on one line.
  function pretty(value) {
    return JSON.stringify(value, null, 2).replace(/\[\s+((?:-?[\d.eE+-]+,?\s*)+)\]/g, (_, numbers) => `[${numbers.trim().replace(/\s+/g, " ")}]`);
  }

  const mediaOf = (content) => Object.entries(content ?? {});

  function medium(type, media, request) {
    const bare = merged(media.schema)?.type === "string" && stated(media) === undefined && stated(merged(media.schema)) === undefined;
    const text = bare ? "" : asText(exampleOf(media, request), type);
    return [
      media.schema && el("p", { class: "muted type-line" }, el("code", {}, type), " ", nameOf(media.schema) ?? typeOf(media.schema)),
      !media.schema && el("p", { class: "muted type-line" }, el("code", {}, type)),
      media.schema && shape(media.schema, request),
      text && [el("p", { class: "note" }, "For example"), el("pre", { tabindex: "0" }, text)],
    ];
  }

  function parameters(list) {
    if (!list.length) return null;
    return [el("h4", {}, "Parameters"), el("ul", { class: "schema" }, list.map((one) => {
      const schema = merged(one.schema) ?? {};
      const bounds = limits(schema);
      return el("li", {}, el("code", {}, one.name), " ", el("span", { class: "type" }, `${typeOf(one.schema)} in the ${one.in}${bounds ? `, ${bounds}` : ""}`),
        one.required && el("span", { class: "needed" }, " needed"), (one.description ?? schema.description) && el("p", { class: "text" }, one.description ?? schema.description));
    }))];
  }

  function responses(all) {
    const entries = Object.entries(all ?? {});
    if (!entries.length) return null;
    return [el("h4", {}, "Answers"), entries.map(([status, response]) => {
      const found = resolved(response) ?? {};
      const contents = mediaOf(found.content).map(([type, media]) => medium(type, media, false));
      const head = [el("code", {}, status), "\u2002", found.description ?? ""];
      const kind = `status ${/^[23]/.test(status) ? "good" : "bad"}`;
      return contents.length
        ? el("details", { class: kind, open: /^2/.test(status) }, el("summary", {}, el("span", {}, head)), contents)
        : el("div", { class: kind }, el("p", {}, head));
    })];
  }

  function addressOf(path, list, values) {
    const query = new URLSearchParams();
    let filled = path;
    list.forEach((one, n) => {
      const value = values[n];
      if (one.in === "path") filled = filled.replaceAll(`{${one.name}}`, encodeURIComponent(value));
      else if (one.in === "query" && value !== "") query.append(one.name, value);
    });
    return query.size ? `${filled}?${query}` : filled;
  }

  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

  function curlOf(verb, address, type, body, extra) {
    const parts = ["curl", verb === "get" ? null : `-X ${verb.toUpperCase()}`, quoted(location.origin + address),
      sclub.key() ? `-H "Authorization: Bearer $SCLUB_KEY"` : null,
      ...Object.entries(extra).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
      type ? `-H ${quoted(`Content-Type: ${type}`)} --data-binary ${quoted(body)}` : null];
    return parts.filter(Boolean).join(" ");
  }

  // Reads as it comes, so that a stream is seen too; no more than can be shown.
  async function received(response, control, showing) {
    const type = response.headers.get("Content-Type") ?? "";
    const binary = !/json|text|xml|javascript|event-stream/.test(type);
    const reader = response.body?.getReader();
    const decoder = new TextDecoder();
    let [text, bytes] = ["", 0];
    while (reader) {
      const { done, value } = await reader.read();
      if (done) break;
      bytes += value.length;
      if (!binary && text.length < SHOWN) text += decoder.decode(value, { stream: true });
      if (/event-stream/.test(type) || binary) showing(binary ? `${count(bytes, "byte")} so far` : text, bytes);
      if (!binary && text.length >= SHOWN) {
        control.abort();
        return { text: `${text.slice(0, SHOWN)}\n… cut here`, bytes };
      }
    }
    if (binary) return { text: bytes ? `${count(bytes, "byte")} of ${type || "no stated type"}` : "", bytes };
    if (/json/.test(type)) {
      try { return { text: pretty(JSON.parse(text)), bytes }; } catch { /* lines, or not JSON after all */ }
    }
    return { text, bytes };
  }

  function tryIt(verb, path, list, body) {
    const inputs = list.map((one) => el("input", { type: "text", autocomplete: "off", spellcheck: "false", required: one.in === "path", value: one.in === "path" ? String(stated(one) ?? stated(merged(one.schema)) ?? "") : "", placeholder: one.in === "path" ? null : String(stated(one) ?? stated(merged(one.schema)) ?? "") }));
    const [type, media] = mediaOf(body?.content)[0] ?? [];
    const area = type ? el("textarea", { spellcheck: "false", rows: "8" }) : null;
    if (area) area.value = asText(exampleOf(media, true), type);
    const answer = el("div", { class: "answer", "aria-live": "polite" });
    const send = el("button", { type: "submit" }, "Send");
    const stop = el("button", { type: "button", hidden: true }, "Stop");
    const changes = verb !== "get" && verb !== "head";
    const form = el("form", {},
      list.map((one, n) => el("label", {}, el("span", {}, el("code", {}, one.name), one.in === "path" ? "" : ` (${one.in})`), inputs[n])),
      area && el("label", { class: "body" }, el("span", {}, "Body, ", el("code", {}, type)), area),
      el("div", { class: "buttons" }, send, stop, changes && el("span", { class: "muted" }, "This asks the server that you see, for real.")),
      answer);
    let control = null;

    async function ask() {
      const values = inputs.map((input) => input.value.trim());
      const address = addressOf(path, list, values);
      const extra = Object.fromEntries(list.map((one, n) => [one, values[n]]).filter(([one, value]) => one.in === "header" && value).map(([one, value]) => [one.name, value]));
      const headers = sclub.headers({ ...extra, ...(type ? { "Content-Type": type } : {}) });
      control = new AbortController();
      const mine = control;
      const began = performance.now();
      const head = el("p", {}, "Waiting …");
      const pre = el("pre", { tabindex: "0", hidden: true });
      const curl = curlOf(verb, address, type, area?.value ?? "", extra);
      const told = el("details", {}, el("summary", {}, "As a command"), el("pre", { tabindex: "0" }, curl), sclub.copyButton(curl));
      answer.replaceChildren(head, pre, told);
      const put = (text) => {
        pre.hidden = !text;
        pre.textContent = text;
      };
      stop.hidden = false;
      try {
        const response = await fetch(address, { method: verb.toUpperCase(), headers, body: area ? area.value : undefined, signal: mine.signal, cache: "no-store" });
        const first = performance.now() - began;
        const tell = (bytes, done) => head.replaceChildren(
          el("strong", { class: response.ok ? "good" : "bad" }, `${response.status} ${response.statusText}`.trim()),
          ` in ${short(done ?? first)}\u202fms, ${count(bytes, "byte")}${done === null ? " so far" : ""}`);
        const { text, bytes } = await received(response, mine, (so, far) => { put(so); tell(far, null); });
        tell(bytes, performance.now() - began);
        put(text);
      } catch (error) {
        if (error.name === "AbortError") head.append(", stopped");
        else head.textContent = "The server does not answer.";
      } finally {
        if (control === mine) {
          control = null;
          stop.hidden = true;
        }
      }
    }

    form.addEventListener("submit", (event) => {
      event.preventDefault();
      control?.abort();
      ask();
    });
    stop.addEventListener("click", () => control?.abort());
    return el("details", { class: "try" }, el("summary", {}, "Try it"), form);
  }

  const anchorOf = (operation) => operation.operationId ?? `${operation.verb}${operation.path.replace(/[^a-z0-9]+/gi, "-")}`;

  function all() {
    const found = [];
    for (const [path, entry] of Object.entries(api.paths ?? {})) {
      for (const verb of VERBS) {
        if (entry[verb]) found.push({ ...entry[verb], verb, path, shared: entry.parameters ?? [] });
      }
    }
    return found;
  }

  // Tags in the order that the document states, then in that of the operations.
  function groups(operations) {
    const names = [...(api.tags ?? []).map((tag) => tag.name), ...operations.flatMap((one) => one.tags?.[0] ?? [])];
    const byTag = new Map([...new Set(names)].map((name) => [name, []]));
    for (const one of operations) {
      const name = one.tags?.[0] ?? "others";
      if (!byTag.has(name)) byTag.set(name, []);
      byTag.get(name).push(one);
    }
    return [...byTag].filter(([, list]) => list.length);
  }

  const verbOf = (verb) => el("span", { class: `verb ${verb}` }, verb.toUpperCase());

  function section(operation) {
    const list = [...operation.shared, ...(operation.parameters ?? [])].map((one) => resolved(one)).filter(Boolean);
    const body = resolved(operation.requestBody);
    const text = [operation.summary, operation.description].filter(Boolean);
    return el("section", { class: "operation", id: anchorOf(operation) },
      el("h3", {}, verbOf(operation.verb), el("code", {}, operation.path), operation.deprecated && el("span", { class: "needed" }, "deprecated")),
      text.map((paragraph) => el("p", { class: "text" }, paragraph)),
      parameters(list),
      body && [el("h4", {}, "Body", body.required === false ? " (may be left out)" : ""), body.description && el("p", { class: "text muted" }, body.description), mediaOf(body.content).map(([type, media]) => medium(type, media, true))],
      responses(operation.responses),
      tryIt(operation.verb, operation.path, list, body));
  }

  function keyField() {
    const input = el("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", value: sclub.key() ?? "", placeholder: "none" });
    input.addEventListener("change", () => sclub.setKey(input.value.trim()));
    const form = el("form", {}, el("label", {}, el("span", { class: "muted" }, "Key for what is sent from here"), el("span", { class: "field" }, input)));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      input.blur();
    });
    return form;
  }

  function draw() {
    const operations = all();
    const byTag = groups(operations);
    const about = (name) => api.tags?.find((tag) => tag.name === name)?.description;
    document.getElementById("title").textContent = api.info?.title ? `${api.info.title} API`.replace(/ API API$/i, " API") : "sclub API";
    document.getElementById("about").textContent = `version ${api.info?.version ?? "–"} · ${count(operations.length, "operation")}`;
    document.getElementById("contents").replaceChildren(keyField(), ...byTag.flatMap(([name, list]) => [
      el("h3", {}, name),
      el("ul", {}, list.map((one) => el("li", {}, el("a", { href: `#${anchorOf(one)}` }, verbOf(one.verb), el("span", {}, one.path))))),
    ]));
    document.getElementById("operations").replaceChildren(
      ...(api.info?.description ? [el("p", { class: "text" }, api.info.description)] : []),
      ...byTag.flatMap(([name, list]) => [el("h2", { class: "group-title" }, name), ...(about(name) ? [el("p", { class: "muted" }, about(name))] : []), ...list.map(section)]));
    if (location.hash.length > 1) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
    document.documentElement.dataset.ready = "1";
  }

  draw();
}

document.addEventListener("DOMContentLoaded", async () => {
  sclub.themeSwitch(document.getElementById("theme"));
  let api = null;
  try {
    api = await sclub.get("/v1/openapi.json");
  } catch {
    document.getElementById("operations").replaceChildren(sclub.el("p", { class: "banner" }, "The description of the API could not be read from /v1/openapi.json."));
    return;
  }
  documentation(api);
});
