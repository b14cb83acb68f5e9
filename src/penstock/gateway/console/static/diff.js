// Differences between two lists of lines: the longest common subsequence stays, the rest is + or -.

const LINES_MAX = 2000;

export function diff(before, after) {
  const a = before.slice(0, LINES_MAX);
  const b = after.slice(0, LINES_MAX);
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { lines.push([" ", a[i]]); i += 1; j += 1; }
    else if (i < a.length && (j === b.length || common[(i + 1) * width + j] >= common[i * width + j + 1])) { lines.push(["-", a[i]]); i += 1; }
    else { lines.push(["+", b[j]]); j += 1; }
  }
  return lines;
}
