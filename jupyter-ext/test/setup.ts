// jsdom has no DragEvent, which Lumino's widgets extend when they are loaded.
globalThis.DragEvent = class extends MouseEvent {} as typeof DragEvent;
