// MCP: the conformance kit, and the inspector's command line over HTTP and on standard input and output.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

const { url, fixture, key } = JSON.parse(process.env.MCP_SERVED);
const scope = 'node_modules/@modelcontextprotocol';
const scratch = mkdtempSync(join(tmpdir(), 'mcp-'));

/** Run a script of a package, and return its standard output; its exit code must be 0. */
async function run(script, ...args) {
  const environment = { ...process.env, MCP_CATALOG_PATH: join(scratch, 'catalog.json') };
  return (await promisify(execFile)(process.execPath, [`${scope}/${script}`, ...args], { env: environment })).stdout;
}

const kit = (...args) => run('conformance/dist/index.js', 'server', ...args);

test('the conformance kit, whole, with its fixtures behind our route', async () => {
  const output = await kit('--url', fixture, '--suite', 'all');
  assert.match(output, /Total: 44 passed, 0 failed/);
});

const applicable = [
  'server-initialize', 'ping', 'tools-list', 'resources-list', 'prompts-list', 'server-sse-multiple-streams',
  'dns-rebinding-protection',
];
for (const scenario of applicable) {
  test(`conformance of our own tools, resources and prompts: ${scenario}`, async () => {
    assert.match(await kit('--url', url, '--scenario', scenario), /0 failed/);
  });
}

const stdio = [
  resolve('../../.venv/bin/pydantic-deep'), 'mcp', '--agents', 'tests.js.mcp_serve:AGENTS', '--allow-answers',
  '--store', `sqlite:///${join(scratch, 'agents.db')}`,
];
const http = ['--transport', 'http', '--server-url', url, '--header', `Authorization: Bearer ${key}`];
const targets = {
  'standard input and output': ['--cwd', resolve('../..'), '--', ...stdio],
  'HTTP, legacy': [...http, '--protocol-era', 'legacy'],
  'HTTP, modern': [...http, '--protocol-era', 'modern'],
};

for (const [name, target] of Object.entries(targets)) {
  const inspect = async (...args) => {
    const command = ['--cli', '--format', 'json', '--quiet', '--connect-timeout', '120000', ...args, ...target];
    return JSON.parse(await run('inspector/clients/launcher/build/index.js', ...command)).result;
  };
  const call = async (tool, args) => {
    const json = JSON.stringify(args);
    const { isError, structuredContent } = await inspect(
      '--method', 'tools/call', '--tool-name', tool, '--tool-args-json', json,
    );
    assert.ok(!isError, json);
    return structuredContent;
  };

  test(`the inspector runs, approves, compares, rewinds and branches: ${name}`, async () => {
    const { tools } = await inspect('--method', 'tools/list', '--strict');
    assert.equal(tools.length, 9);
    const paused = await call('run', { prompt: 'write hello' });
    assert.equal(paused.state, 'awaiting_approval');
    const [{ approval, digest }] = paused.approvals;
    const { run: done } = await call('answer_approval', { approval, digest, decision: 'approve' });
    assert.equal(done.state, 'complete');
    const { files } = await call('diff', { version: paused.version, to: done.version });
    assert.deepEqual(files.map((file) => [file.path, file.kind]), [['/a.txt', 'added']]);
    const { conversation } = done;
    assert.equal((await call('rewind', { conversation, version: paused.version })).head, paused.version);
    const branched = await call('run', { prompt: 'hi', from_version: done.version, branch: 'other' });
    assert.match(branched.output, /^You said: hi/);
    const { versions } = await call('log', { conversation, steps: true });
    assert.ok(versions.some((version) => version.branch === 'other'));
    const { contents } = await inspect(
      '--method', 'resources/read', '--uri', `deep-agents://versions/${done.version}/files/a.txt`,
    );
    assert.equal(contents[0].text, 'hello');
    const { prompts } = await inspect('--method', 'prompts/list');
    assert.deepEqual(prompts.map((prompt) => prompt.name), ['careful.poetry']);
  });
}
