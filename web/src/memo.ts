// A component that is rendered again only if its properties differ: `memo` of React, which is not part of Preact's core.

import { Component, type ComponentChildren } from 'preact';

export function memo<P extends object>(render: (props: P) => ComponentChildren, isSame: (before: P, next: P) => boolean) {
  return class extends Component<P> {
    override shouldComponentUpdate(next: P) { return !isSame(this.props, next); }
    override render() { return render(this.props); }
  };
}
