import{a}from"./chunk-57HU7MAP.js";import"./chunk-SQE76S5B.js";export{a as parseBlocks};
