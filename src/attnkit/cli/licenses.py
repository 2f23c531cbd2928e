"""``attnkit licenses``: licences of the installed dependencies."""

from dataclasses import asdict
from json import dumps

from attnkit.cli.options import Json
from attnkit.progress import console
from attnkit.runtime.licenses import installed_licenses


def command(json: Json = False) -> None:
    """List the installed dependencies with version and licence.

    Dependencies of dependencies and of installed extras are included. The licences are those that the packages state in
    their metadata; attnkit itself is under Apache-2.0.

    \b
    Examples:
      attnkit licenses
      attnkit licenses --json > licenses.json
    """
    found = installed_licenses()
    if json:
        console.result(dumps([asdict(one) for one in found], indent=1))
        return
    rows = [("package", "version", "required by", "licence")]
    rows += [(one.package, one.version, one.required_by, one.license) for one in found]
    console.result(console.printable(console.table(rows, indent="")))
