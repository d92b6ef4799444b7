"""``python -m numadoctor`` is the ``numadoctor`` command."""

from numadoctor.cli import main

if __name__ == "__main__":
    main()
