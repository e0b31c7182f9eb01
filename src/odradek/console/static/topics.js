// Topics are found as one types.
import { searchable } from "./search.js";

searchable(document.getElementById("search-form"), document.getElementById("topics"));
