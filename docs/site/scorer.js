// Ranks the hits of Sphinx's search, which knows whether a page has a word and not how often. A hit leads to the section of its page that says
// most about the query, and shows the lines with its words: from the disk a browser may not fetch pages to show them.
// `stage.py` puts the sections of each page into TEXTS: heading and text. Sphinx escapes titles and lines when it shows them.
const TEXTS = {};
// Pages that mention everything, and explain little of it to users.
const WEIGHTS = { changelog: 0.4, contributing: 0.4, architecture: 0.5, algorithm: 0.7, cli: 0.5, "http-api": 0.7, "js-client": 0.8, "python-api": 0.8, "python-client": 0.8, performance: 0.8, "sclub-soft": 0.8 };
// Pages that explain what the words of a query mean together, or a word that many pages use.
const EXPLAINED = {
  __proto__: null, // "constructor" is a word like any other
  "cold start": ["catalogue", "which-policy"],
  "a/b test": ["experiments"],
  "own policy": ["tutorial-researcher"],
  feedback: ["service"],
  linucb: ["which-policy"],
  "new user": ["tutorial-engineer", "catalogue"],
  timeout: ["service"],
};
const query = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase().trim();
const stemOf = (word) => new Stemmer().stemWord(word.toLowerCase());

// Sphinx wants all words of a query on a page. Words that no page has are left out, unless there are no others.
var splitQuery = (text) => {
  const words = text.split(/[^\p{Letter}\p{Number}_]+/u).filter(Boolean);
  const terms = [Search._index.terms, Search._index.titleterms].flatMap(Object.keys);
  const isKnown = (stem) => terms.some((term) => term.startsWith(stem));
  const known = words.filter((word) => isKnown(stemOf(word)));
  return known.length ? known : words;
};

let stems, phrase; // patterns: of each word of the query and of those that begin like it, and of the words together
function readQuery() {
  const words = splitQuery(query).filter((word) => /^[a-z]\w/.test(word) && !stopwords.has(word));
  stems = words.map((word) => `\\b${stemOf(word).replace(/i$/, "")}`);
  phrase = stems.join("\\w*\\W+(?:\\w+\\W+)?");
}

const count = (text, pattern) => text.match(new RegExp(pattern, "gi"))?.length ?? 0;

// How much a text says about the query: by the least frequent of its words, and by how often they stand together.
function relevance(text) {
  const rarest = Math.min(...stems.map((stem) => count(text, stem)), 1000);
  return 6 * Math.log2(1 + rarest) + (stems.length > 1 ? 8 * Math.log2(1 + count(text, phrase)) : 0);
}

// The place of the section of a page that says most. Each word of the query in its heading counts as if the text had ten times as many.
function bestOf(sections) {
  const inHeading = (heading) => 20 * stems.filter((stem) => count(heading, stem)).length;
  const scores = sections.map(([heading, text]) => inHeading(heading) + relevance(text));
  return scores.indexOf(Math.max(...scores));
}

function excerpt(text) {
  const at = [phrase, ...stems].map((pattern) => text.search(new RegExp(pattern, "i"))).find((at) => at >= 0) ?? 0;
  const start = at < 100 ? 0 : text.lastIndexOf(" ", at - 60) + 1;
  const end = text.length < start + 240 ? text.length : text.lastIndexOf(" ", start + 240);
  return `${start ? "… " : ""}${text.slice(start, end)}${end < text.length ? " …" : ""}`;
}

const pages = {};

function look(page) {
  const sections = TEXTS[page] ?? [["", ""]];
  return { sections, best: bestOf(sections), score: relevance(sections.flat().join(" ")) };
}

var Scorer = {
  score: (hit) => {
    const [page, title, , about, score, , kind] = hit;
    if (!stems) readQuery();
    const { sections, best, score: ofPage } = (pages[page] ??= look(page));
    let place = -1;
    if (kind === "title") place = sections.findIndex(([heading]) => heading === title.split(" > ").at(-1));
    if (kind === "text") place = best;
    if (place === 0) hit[2] = "";
    if (place > 0 && kind === "text") {
      const anchor = Search._index.alltitles[sections[place][0]]?.find(([file]) => Search._index.docnames[file] === page)?.[1];
      if (anchor) [hit[1], hit[2]] = [`${title} > ${sections[place][0]}`, `#${anchor}`];
    }
    hit[3] = about ?? excerpt(sections.slice(Math.max(place, 0)).find(([, text]) => text)?.[1] ?? title);
    const explained = EXPLAINED[query]?.includes(page) ? 100 : 0;
    const said = kind === "title" && place > 0 ? relevance(sections[place].join(" ")) : ofPage;
    return (WEIGHTS[page] ?? 1) * (score + said) + explained;
  },
  objNameMatch: 15,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
