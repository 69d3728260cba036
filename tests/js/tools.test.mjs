// Functions of clients and answers by a schema, with the loops of the clients themselves.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createGoogleGenerativeAI } from '@ai-sdk/google';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, Output, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { z } from 'zod';
import { ada, url } from './server.mjs';

const providers = {
  openai: createOpenAICompatible({ name: 'served', baseURL: `${url}/v1`, apiKey: ada, supportsStructuredOutputs: true }),
  responses: createOpenAI({ baseURL: `${url}/v1`, apiKey: ada }),
  anthropic: createAnthropic({ baseURL: `${url}/v1`, apiKey: ada }),
  google: createGoogleGenerativeAI({ baseURL: `${url}/v1beta`, apiKey: ada }),
};
const degrees = { Rome: 40, Oslo: 2 };
const options = (name) => ({
  model: providers[name]('writer'),
  prompt: 'weather Rome Oslo',
  stopWhen: stepCountIs(3),
  maxRetries: 0,
  tools: {
    weather: tool({
      description: 'The weather of a city.',
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => `${degrees[city]} degrees in ${city}`,
    }),
  },
});

for (const name of Object.keys(providers)) {
  test(`${name}: the loop of generateText runs the functions`, async () => {
    const { text, steps } = await generateText(options(name));
    assert.deepEqual(steps[0].toolCalls.map((call) => call.input.city), ['Rome', 'Oslo']);
    assert.match(text, /^Done: .*2 degrees in Oslo/);
    assert.equal(steps.length, 2);
  });

  test(`${name}: the loop of streamText runs the functions`, async () => {
    const { textStream, steps } = streamText(options(name));
    let text = '';
    for await (const piece of textStream) text += piece;
    assert.match(text, /^I look\.Done: .*2 degrees in Oslo/);
    assert.equal((await steps).length, 2);
  });

  test(`${name}: an object by a schema`, async () => {
    const schema = z.object({ city: z.string(), degrees: z.number().int() });
    const { output } = await generateText({
      model: providers[name]('writer'),
      prompt: 'Weather?',
      maxRetries: 0,
      output: Output.object({ schema }),
    });
    assert.deepEqual(output, { city: 'Rome', degrees: 40 });
  });
}

test('openai: runTools runs the functions', async () => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: ada, maxRetries: 0 });
  const runner = client.chat.completions.runTools({
    model: 'writer',
    messages: [{ role: 'user', content: 'weather Rome' }],
    tools: [
      {
        type: 'function',
        function: {
          name: 'weather',
          parse: JSON.parse,
          function: ({ city }) => `${degrees[city]} degrees`,
          parameters: { type: 'object', properties: { city: { type: 'string' } } },
        },
      },
    ],
  });
  assert.match(await runner.finalContent(), /^Done: 40 degrees/);
});
