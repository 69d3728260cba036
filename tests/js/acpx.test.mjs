// The command-line client acpx, which runs `pydantic-deep acp` as an editor does, and validates its messages.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';

const home = realpathSync(mkdtempSync(join(tmpdir(), 'acpx-')));
const python = resolve('../../.venv/bin/python');
const options = { env: { ...process.env, HOME: home, XDG_STATE_HOME: home }, timeout: 120_000 };
const cli = ['node_modules/acpx/dist/cli.js', '--agent', `${python} ${resolve('acp_agent.py')}`];
const directories = [];

function newDirectory() {
  directories.push(realpathSync(mkdtempSync(join(tmpdir(), 'acpx-work-'))));
  return directories.at(-1);
}

const PERMISSION_DENIED = 5; // the exit code of acpx, although the turn continues

async function acpx(cwd, ...args) {
  const run = promisify(execFile)(process.execPath, [...cli, '--cwd', cwd, ...args], options);
  const { stdout } = await run.catch((error) => {
    if (error.code !== PERMISSION_DENIED) throw error;
    return error;
  });
  return stdout;
}

const messagesOf = (output) => output.trim().split('\n').map((line) => JSON.parse(line));

after(async () => {
  for (const cwd of directories) {
    await acpx(cwd, 'sessions', 'close').catch(() => {}); // some tests have no session
    rmSync(cwd, { recursive: true });
  }
  rmSync(home, { recursive: true, force: true });
});

test('a permitted change is written by the client', async () => {
  const cwd = newDirectory();
  const messages = messagesOf(await acpx(cwd, '--approve-all', '--format', 'json', 'exec', 'write Hello'));
  const requested = messages.map(({ method }) => method).filter((method) => /^fs|permission/.test(method));
  assert.deepEqual(requested, ['session/request_permission', 'fs/read_text_file', 'fs/write_text_file']); // it may be unsaved in the editor
  assert.deepEqual(messages.at(-1).result, { stopReason: 'end_turn' });
  assert.equal(readFileSync(join(cwd, 'a.txt'), 'utf8'), 'Hello');
});

test('a change that is not permitted is not made, and the turn continues', async () => {
  const cwd = newDirectory();
  const messages = messagesOf(await acpx(cwd, '--deny-all', '--format', 'json', 'exec', 'write Hello'));
  assert.equal(messages.filter(({ method }) => method === 'session/request_permission').length, 1);
  assert.deepEqual(messages.at(-1).result, { stopReason: 'end_turn' });
  assert.ok(!existsSync(join(cwd, 'a.txt')));
});

test('a session is loaded after its process was killed, and changes its mode', async () => {
  const cwd = newDirectory();
  await acpx(cwd, 'sessions', 'new');
  assert.match(await acpx(cwd, 'Hi'), /You said: Hi, after 0 messages/);
  process.kill(Number(/^pid: (\d+)$/m.exec(await acpx(cwd, 'status'))[1]), 'SIGKILL');
  assert.match(await acpx(cwd, 'Again'), /You said: Again, after 2 messages/);
  assert.match(await acpx(cwd, 'sessions', 'list'), new RegExp(`\tHi\t${cwd}\t`)); // named after its first prompt
  await acpx(cwd, 'set-mode', 'auto');
  const messages = messagesOf(await acpx(cwd, '--deny-all', '--format', 'json', 'write Hello'));
  assert.ok(!messages.some(({ method }) => method === 'session/request_permission'));
  assert.ok(!existsSync(join(cwd, 'a.txt'))); // the client refuses the write itself
});

test('a turn is cancelled, and the session continues', async () => {
  const cwd = newDirectory();
  await acpx(cwd, 'sessions', 'new');
  const waiting = spawn(process.execPath, [...cli, '--cwd', cwd, '--format', 'json', 'wait'], options);
  let output = '';
  let hasBegun;
  const begun = new Promise((resolve) => (hasBegun = resolve));
  waiting.stdout.on('data', (data) => {
    output += data;
    if (output.includes('"session/prompt"')) hasBegun();
  });
  const ended = new Promise((resolve) => waiting.on('close', resolve));
  await begun;
  await acpx(cwd, 'cancel');
  await ended;
  assert.match(output, /"stopReason":"cancelled"/);
  assert.match(await acpx(cwd, 'Hi'), /You said: Hi/);
});
