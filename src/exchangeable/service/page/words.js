// What the words on the pages mean, and links to the documentation.

import { el } from "./dom.js";

export const DOCS = "https://github.com/exchangeable-dev/exchangeable/blob/main/docs/";
const WORDS = {
  capital: ["Capital", "A gambler bets against the data being exchangeable, starts with 1, and never goes into debt. On exchangeable data no strategy makes the capital grow on average, so a large capital is evidence of a change.", "idea.md"],
  evidence: ["Evidence", "The capital, on a log scale. Below about 3 it is barely worth mentioning; at 100 the data is called changed, unless the stream is set up otherwise.", "idea.md"],
  alarm: ["Alarm", "The evidence has reached the level that the stream is set up for. It stays on until a reset, or starts a new test at once: then the stream is shown as restarted.", "after-an-alarm.md"],
  changepoint: ["Change point", "An estimate of the example after which the data is different. It has no guarantee, unlike the alarm.", "after-an-alarm.md"],
  pvalue: ["p-value", "Where an example ranks among the earlier ones, from 0 (stranger than all) to 1. On exchangeable data the p-values are uniform.", "idea.md"],
  bet: ["Bet", "What the next p-value pays. It is placed before the p-value is known, and pays 1 on average if the data is exchangeable.", "choosing.md"],
  fleet: ["Fleet", "All streams together. With many streams a few alarms are false by chance; the rule e-BH names the streams that have changed, so that on average at most a given share of these is wrong. A stream that joined later, or was reset, needs more evidence, so it may have an alarm and not be named.", "recipes/many-streams.md"],
};

/** Explain some of the words, as a list that can be opened. */
export function explained(...keys) {
  const entries = keys.map((key) => WORDS[key]).flatMap(([word, text, page]) => [
    el("dt", { text: word }),
    el("dd", {}, `${text} `, el("a", { href: DOCS + page, rel: "noreferrer", text: `More about ${word.toLowerCase()}` })),
  ]);
  return el("details", { class: "words" }, el("summary", { text: "What do these words mean?" }), el("dl", { class: "facts" }, entries));
}
