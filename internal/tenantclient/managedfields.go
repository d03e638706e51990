package tenantclient

// trimmer cuts out of JSON texts that follow one another what Kubernetes' metadata.managedFields hold: more than half
// of a pod, which nothing reads that the pool keeps of tenants, and which decoders would go over six times. What is
// left is an empty list. It follows strings, objects and lists as scanner does, which has counted what is cut out, and
// leaves what is no JSON to the client's decoder. A member of another name or in another place stays, as does a name
// that is written with escapes. What is an object and has a list `items` besides, as a custom resource may, loses those
// of its items, too: a text alone does not say whether it is a list.
//
//	an object   {"metadata":{"managedFields":[…]}}
//	a list      {"items":[{"metadata":{"managedFields":[…]}}]}
//	a watch     {"object":{"metadata":{"managedFields":[…]}}}
type trimmer struct {
	// watch is whether the texts are events of a watch.
	watch bool
	// depth is how many objects and lists are open, and within what the outermost of them are.
	depth  int
	within [6]place

	inString, escaped bool
	// name is the beginning of the string that is read, or was read last, and length how long it is.
	name   [len("managedFields")]byte
	length int
	// cut is the depth of the list that is cut out, 0 for none.
	cut int
}

// place is what an object or a list is of a text.
type place int

const (
	elsewhere place = iota
	event
	listOrObject // the outermost one of a text that is no event
	items
	object
	metadata
	managedFields
)

// trim returns data without what is cut out. It writes over data.
func (t *trimmer) trim(data []byte) []byte {
	kept, start := 0, 0
	for i, c := range data {
		switch {
		case t.escaped:
			t.escaped = false
			t.feed(c)
		case t.inString:
			if t.inString = c != '"'; t.inString {
				t.escaped = c == '\\'
				t.feed(c)
			}
		case c == '"':
			t.inString, t.length = true, 0
		case c == '{', c == '[':
			if t.open(c == '[') {
				kept += copy(data[kept:], data[start:i+1])
			}
		case c == '}', c == ']':
			if t.close() {
				start = i
			}
		}
	}
	if t.cut == 0 {
		kept += copy(data[kept:], data[start:])
	}
	return data[:kept]
}

// feed adds a character of a string.
func (t *trimmer) feed(c byte) {
	if t.length < len(t.name) {
		t.name[t.length] = c
	}
	t.length++
}

// open opens an object or a list, and returns whether it is to be cut out.
func (t *trimmer) open(isList bool) bool {
	opened := t.objectAt()
	if isList {
		opened = t.listAt()
	}
	if t.depth < len(t.within) {
		t.within[t.depth] = opened
	}
	t.depth++
	if opened == managedFields && t.cut == 0 {
		t.cut = t.depth
		return true
	}
	return false
}

// parent returns within what the next object or list begins, elsewhere at the outermost.
func (t *trimmer) parent() place {
	if t.depth > 0 && t.depth <= len(t.within) {
		return t.within[t.depth-1]
	}
	return elsewhere
}

// listAt returns what a list is that begins.
func (t *trimmer) listAt() place {
	switch parent := t.parent(); {
	case parent == listOrObject && t.called("items"):
		return items
	case parent == metadata && t.called("managedFields"):
		return managedFields
	}
	return elsewhere
}

// objectAt returns what an object is that begins.
func (t *trimmer) objectAt() place {
	parent := t.parent()
	switch {
	case t.depth == 0 && t.watch:
		return event
	case t.depth == 0:
		return listOrObject
	case parent == items, parent == event && t.called("object"):
		return object
	case (parent == object || parent == listOrObject) && t.called("metadata"):
		return metadata
	}
	return elsewhere
}

// close closes an object or a list, and returns whether it was cut out.
func (t *trimmer) close() bool {
	ends := t.cut > 0 && t.cut == t.depth
	if ends {
		t.cut = 0
	}
	t.depth = max(0, t.depth-1)
	return ends
}

// called returns whether the string that was read last is a name: before an object or a list that is the one of the
// member.
func (t *trimmer) called(name string) bool {
	return t.length == len(name) && string(t.name[:t.length]) == name
}
