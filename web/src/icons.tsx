// Icons as strokes on a grid of 24. They are decoration: the text beside them, or the label of their button, says the same.

const PATHS = {
  plus: 'M12 5v14M5 12h14',
  close: 'M6 6l12 12M18 6L6 18',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  copy: 'M9 9h10v10H9zM5 15V5h10',
  search: 'M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM20 20l-4-4',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  clip: 'M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.3 3.3 0 0 1 4.7 4.7l-8.5 8.5a1.7 1.7 0 0 1-2.4-2.4L14.5 7',
  menu: 'M4 7h16M4 12h16M4 17h16',
  inbox: 'M4 13l3-8h10l3 8v6H4zM4 13h5l1.5 3h3L15 13h5',
  branch: 'M7 4v16M7 14c7 0 10-3 10-8M5 4h4M5 20h4M15 6h4',
  edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  file: 'M6 3h8l4 4v14H6zM14 3v4h4',
  folder: 'M3 6h6l2 2h10v11H3z',
  terminal: 'M4 5h16v14H4zM7 9l3 3-3 3M13 15h4',
  list: 'M9 6h11M9 12h11M9 18h11M4 6h1M4 12h1M4 18h1',
  person: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c0-5 3.5-7 8-7s8 2 8 7',
  tool: 'M14 6a4 4 0 0 0 5 5l-9 9-4-4 9-9zM15 5l3 3',
  book: 'M5 4h11a3 3 0 0 1 3 3v13H8a3 3 0 0 1-3-3zM5 17a3 3 0 0 1 3-3h11',
  left: 'M14 6l-6 6 6 6',
  right: 'M10 6l6 6-6 6',
  down: 'M6 10l6 6 6-6',
  panel: 'M4 5h16v14H4zM15 5v14',
  sliders: 'M4 8h8M18 8h2M4 16h2M12 16h8M15 8m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0M9 16m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0',
  undo: 'M9 7L4 12l5 5M4 12h10a6 6 0 0 1 6 6v1',
  retry: 'M20 11a8 8 0 1 0-2 6M20 5v6h-6',
  thought: 'M12 4a7 7 0 0 0-4 12.7V19h8v-2.3A7 7 0 0 0 12 4zM9.5 21.5h5',
  download: 'M12 4v11M7 11l5 5 5-5M5 20h14',
  out: 'M10 4H5v16h5M14 8l4 4-4 4M18 12H9',
} as const;

export type IconName = keyof typeof PATHS;

export const Icon = ({ name }: { name: IconName }) => <svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d={PATHS[name]} /></svg>;
