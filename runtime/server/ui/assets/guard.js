// Keeps what fails to be drawn from taking away what is around it.

import { Component } from "./dom.js";

/** `instead`: of the error, what is shown in the place of the children. */
export class Guard extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }

  render({ children, instead }, { error }) {
    return error ? instead(error) : children;
  }
}
