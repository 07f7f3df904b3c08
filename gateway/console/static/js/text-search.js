// Finds a text in another one, whatever the case of letters.

const MOST = 200;

/**
 * The pieces of `words`: those at odd places are the text that is searched.
 *
 * @param {string} words
 * @param {string} text in lower case
 */
export function pieces(words, text) {
  const lower = words.toLowerCase();
  // some letters are longer in lower case: then a place in `lower` is not the place in `words`
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
