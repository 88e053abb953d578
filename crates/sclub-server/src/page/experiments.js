// The experiment under way, or the last one: its arms, rates and intervals, and the result as a sentence.

import { get } from "./api.js";
import { $, el, fill, wide } from "./dom.js";
import { date, decimal, short, whole } from "./numbers.js";
import { world } from "./world.js";

const signed = (value) => `${value < 0 ? "" : "+"}${decimal(value, 4)}`;
const between = (of, format) => (of ? `${format(of.low)} to ${format(of.high)}` : "–");

function row(arm, first) {
  const cell = (text) => el("td", { class: "number" }, text);
  const against = arm.difference ? `${signed(arm.difference.value)}, ${between(arm.difference, signed)}` : "–";
  return el("tr", {},
    el("th", { scope: "row" }, arm.name, first && arm.name !== "control" ? el("span", { class: "muted" }, " control") : ""),
    el("td", {}, arm.policy),
    cell(arm.shadow ? "shadow" : `${short(arm.share, 4)}\u202f%`), cell(whole(arm.users)), cell(whole(arm.items)),
    cell(arm.rate === null ? "–" : decimal(arm.rate, 4)), cell(between(arm.rate_interval, (value) => decimal(value, 4))),
    cell(first ? "–" : against));
}

function draw(answer) {
  const shown = answer.running ?? answer.past[0];
  $("experiment").hidden = !shown;
  if (!shown) return;
  $("experiment-note").textContent = answer.running ? `${shown.name}, running` : `${shown.name}, ended; ${shown.winner} is in force since ${date(shown.ended_at)}`;
  const names = ["arm", "policy", "share", "users", "items", "reward per item", "95\u202f% interval", "against control"];
  const head = el("tr", {}, names.map((name, index) => el("th", { scope: "col", class: index > 1 ? "number" : null }, name)));
  fill($("experiment-card"),
    shown.summary.map((text) => el("p", {}, text)),
    wide("Arms", el("table", {}, el("thead", {}, head), el("tbody", {}, shown.arms.map((arm, index) => row(arm, index === 0))))));
}

let ticket = 0;

export async function refresh() {
  ticket += 1;
  const mine = ticket;
  const answer = await get("/v1/experiments");
  if (mine !== ticket) return;
  const hasExperiment = Boolean(answer.running) || answer.past.length > 0;
  // The next poll draws the cards anew.
  if (hasExperiment !== world.hadExperiment) world.dirty = true;
  world.hadExperiment = hasExperiment;
  draw(answer);
}
