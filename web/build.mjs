// Builds the page into `pydantic_deep/server/static`. The same sources always give the same bytes.
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

import { build } from 'esbuild';

process.chdir(dirname(fileURLToPath(import.meta.url)));
const outdir = process.argv[2];
await rm(outdir, { recursive: true, force: true });
await mkdir(outdir, { recursive: true });

const { metafile } = await build({
  entryPoints: ['src/page.tsx', 'src/text.tsx', 'src/blocks.ts', 'src/page.css'],
  outdir,
  bundle: true,
  splitting: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  charset: 'utf8',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  chunkNames: '[name]-[hash]',
  external: ['./unseen.js'], // the server generates it
  legalComments: 'none', // the licences are in `licences.txt`
  metafile: true,
});
for (const name of ['index.html', 'icon.svg']) await copyFile(`src/${name}`, `${outdir}/${name}`);

const bundled = Object.keys(metafile.inputs).map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]);
const licences = [...new Set(bundled.filter(Boolean))].sort().map(async (name) => {
  const { version, license } = JSON.parse(await readFile(`node_modules/${name}/package.json`, 'utf8'));
  const file = (await readdir(`node_modules/${name}`)).find((each) => /^licen[cs]e/i.test(each));
  if (!file || !/^(MIT|BSD-3-Clause|Apache-2\.0|ISC)$/.test(license)) throw new Error(`${name} has the licence ${license}.`);
  return `${name} ${version} (${license})\n\n${(await readFile(`node_modules/${name}/${file}`, 'utf8')).trim()}\n`;
});
await writeFile(`${outdir}/licences.txt`, (await Promise.all(licences)).join(`\n${'-'.repeat(80)}\n\n`));

const sizes = await Promise.all((await readdir(outdir)).filter((name) => /\.(js|css)$/.test(name))
  .map(async (name) => gzipSync(await readFile(`${outdir}/${name}`), { level: 9 }).length));
console.log(`${Math.round(sizes.reduce((sum, size) => sum + size, 0) / 1000)} kB of JavaScript and CSS, compressed`);
