// Finds a text in another one, in upper or lower case.

const MOST = 200;

/**
 * The pieces of `words` with what they are: those at odd places are the text that is looked for.
 *
 * @param {string} words
 * @param {string} text in lower case
 */
export function pieces(words, text) {
  const lower = words.toLowerCase();
  // some letters are longer in lower case: then places in one are not places in the other
  if (!text || lower.length !== words.length) return [words];
  /** @type {string[]} */
  const found = [];
  let from = 0;
  for (let at = lower.indexOf(text); at >= 0 && found.length < MOST; at = lower.indexOf(text, from)) {
    found.push(words.slice(from, at), words.slice(at, at + text.length));
    from = at + text.length;
  }
  return [...found, words.slice(from)];
}
