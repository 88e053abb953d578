// Ranks the hits of Sphinx's search, which knows whether a page has a word and not how often. `stage.py` puts the numbers of words into COUNTS,
// and what the first page says about each page into ABOUT.
const COUNTS = {};
const ABOUT = {};
// Pages that mention everything, and explain little of it to users.
const WEIGHTS = { changelog: 0.4, contributing: 0.4, architecture: 0.5, cli: 0.7, "http-api": 0.7, "python-api": 0.8, performance: 0.8, "sclub-soft": 0.8 };
// Pages that explain what the words of a query mean together, or a word that many pages use.
const EXPLAINED = {
  "cold start": ["catalogue", "which-policy"],
  "a/b test": ["experiments"],
  "own policy": ["tutorial-researcher"],
  feedback: ["service"],
  linucb: ["which-policy"],
  timeout: ["service"],
};
const query = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase().trim();

// The least frequent of the query's words on a page, and of the page's words that begin with them.
function frequency(page) {
  const words = query.match(/[a-z][a-z0-9_]+/g) ?? [];
  const stems = words.filter((word) => !stopwords.has(word)).map((word) => new Stemmer().stemWord(word).replace(/i$/, ""));
  const numbers = Object.entries(COUNTS[page] ?? {});
  return Math.min(...stems.map((stem) => numbers.reduce((sum, [word, number]) => (word.startsWith(stem) ? sum + number : sum), 0)), 1000);
}

const frequencies = {};

var Scorer = {
  score: (hit) => {
    const [page, , , about, score] = hit;
    // From the disk a browser may not fetch the pages that were found, to show the lines with the words.
    if (about === null && location.protocol === "file:") hit[3] = ABOUT[page] ?? null;
    frequencies[page] ??= frequency(page);
    const explained = EXPLAINED[query]?.includes(page) ? 100 : 0;
    return (WEIGHTS[page] ?? 1) * (score + 6 * Math.log2(1 + frequencies[page])) + explained;
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
