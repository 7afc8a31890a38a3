package diagnosis

var endpointEntries = []Entry{}
