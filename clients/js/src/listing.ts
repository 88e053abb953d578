/** The items of a catalogue that changes while it is listed. */

import { NotFoundError, SclubError } from "./errors.js";
import type { AnswerOf, CatalogueItem, ItemFigures } from "./types.js";

/** The number of passes with few new items after which a listing is given up. */
const PASSES = 20;
/** A pass with fewer new items has few. */
const FEW = 100;

/** A page of the catalogue. */
export type ItemsPage = AnswerOf<"/v1/items", "get">;

/** An item of a listing. */
export type Listed = CatalogueItem & { counts?: ItemFigures };

/** What is known after the pages were read once. */
interface Pass {
  pages: number;
  /** The revisions that the order of the catalogue had. */
  revisions: Set<unknown>;
  /** Why it has not come to the last page, if so: the item that the next page begins after was removed, or has moved to the front. */
  broken?: "removed" | "moved";
}

/**
 * Yields every item that is there all the time, and none twice. `ask` returns the page after an item, by counts or as in the catalogue.
 *
 * The removal of an item moves another one, perhaps to a page that was read before. So the pages are read again until no item is
 * removed meanwhile. In an order by counts every item that is shown moves, and nothing tells that it did: what such pages left out
 * is found in the order of the catalogue.
 */
export async function* listed(
  ask: (after: string | undefined, isByCounts: boolean) => Promise<ItemsPage>,
  isByCounts: boolean,
): AsyncGenerator<Listed, void, undefined> {
  const seen = new Set<string>();
  let former = "";
  for (let poor = 0; poor < PASSES; ) {
    const known = seen.size;
    const { pages, revisions, broken } = yield* pass((after) => ask(after, isByCounts), seen);
    if (broken === undefined && (isByCounts ? pages === 1 : revisions.size === 1)) return;
    // The nodes of a cluster number their revisions differently. They only grow, so the same numbers again are those of several nodes.
    const numbers = isByCounts || broken !== undefined ? "" : [...revisions].sort().join();
    if (numbers !== "" && numbers === former) return;
    former = numbers;
    // What was removed does not spoil the order of what is left.
    isByCounts &&= broken === "removed";
    // A loop that removes what it is given needs many passes, and each has new items.
    if (seen.size - known < FEW) poor += 1;
  }
  const message = `the catalogue was read ${PASSES} times, and each time items were removed meanwhile, so that others may be missing; try again later`;
  throw new SclubError(message, { code: "changing" });
}

/** Reads the pages once, and yields the items that are new. */
async function* pass(ask: (after?: string) => Promise<ItemsPage>, seen: Set<string>): AsyncGenerator<Listed, Pass, undefined> {
  const done: Pass = { pages: 0, revisions: new Set() };
  let [read, total] = [0, 0];
  for (let after: string | undefined; ; ) {
    let page: ItemsPage;
    try {
      page = await ask(after);
    } catch (error) {
      if (after === undefined || !(error instanceof NotFoundError && error.code === "unknown_item")) throw error;
      return { ...done, broken: "removed" };
    }
    done.pages += 1;
    done.revisions.add(page.order_revision);
    read += page.items.length;
    total = Math.max(total, page.total);
    for (const [place, item] of page.items.entries()) {
      if (seen.has(item.id)) continue;
      seen.add(item.id);
      const figures = page.counts?.[place];
      yield figures === undefined ? item : { ...item, counts: figures };
    }
    after = page.next ?? undefined;
    if (after === undefined) return done;
    // Without this, a pass would not end while the last item of each page moves to the front.
    if (read > total) return { ...done, broken: "moved" };
  }
}
