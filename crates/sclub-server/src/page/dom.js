// Builds elements. Strings become text, never markup.

export const $ = (id) => document.getElementById(id);

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

function assign(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

export function el(tag, attributes = {}, ...children) {
  return append(assign(document.createElement(tag), attributes), children);
}

export function svg(tag, attributes = {}, ...children) {
  return append(assign(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes), children);
}

export function copyButton(text) {
  const button = el("button", { type: "button", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return button;
}

// A link, a button or a part that can be scrolled, to find it again in the new contents of a card.
const nameOf = (element) => element.getAttribute("href") ?? element.dataset.name ?? (element.id || element.getAttribute("aria-label"));
const named = (card) => new Map([...card.querySelectorAll("a[href], [tabindex], [data-name]")].map((element) => [nameOf(element), element]));

// Replaces the contents of a card. The focus and the scroll positions move to the same parts of the new contents.
export function fill(card, ...contents) {
  const held = card.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  const scrolled = [...named(card)].filter(([, part]) => part.scrollTop || part.scrollLeft).map(([name, part]) => [name, part.scrollTop, part.scrollLeft]);
  const open = card.querySelector("details")?.open;
  card.replaceChildren(...contents.flat().filter(Boolean));
  if (open && card.querySelector("details")) card.querySelector("details").open = true;
  if (!held && !scrolled.length) return;
  const parts = named(card);
  for (const [name, top, left] of scrolled) parts.get(name)?.scrollTo({ top, left, behavior: "instant" });
  if (held) parts.get(held)?.focus({ preventScroll: true });
}

// Marks each edge of a part that can be scrolled behind which there is more. The style sheet draws a shadow there.
export function edges(box) {
  const mark = () => {
    box.classList.toggle("before", box.scrollLeft > 1);
    box.classList.toggle("after", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    box.classList.toggle("above", box.scrollTop > 1);
    box.classList.toggle("below", box.scrollTop + box.clientHeight < box.scrollHeight - 1);
  };
  box.classList.add("edges");
  box.addEventListener("scroll", mark, { passive: true });
  new ResizeObserver(mark).observe(box);
  new MutationObserver(mark).observe(box, { childList: true });
  return box;
}

// A table that is scrolled sideways where it is too wide.
export const wide = (label, table) => edges(el("div", { class: "wide", tabindex: "0", role: "group", "aria-label": label }, table));

// A bar that fills a share of its track.
export function bar(share) {
  const filled = el("i");
  filled.style.width = `${100 * share}%`;
  return filled;
}

export const facts = (...pairs) => el("dl", { class: "facts" },
  pairs.filter(Boolean).map(([name, ...value]) => el("div", {}, el("dt", {}, name), el("dd", {}, ...value))));
