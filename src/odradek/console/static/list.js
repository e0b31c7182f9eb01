// A page that is a list: it is found as one types.
import { searchable } from "./search.js";

searchable(document.getElementById("search-form"), document.querySelector("section[data-live]"));
