# For graders whose machine cannot run bubblewrap, such as a Mac: Linux with all that grading needs.
# notebooks/assignments/teaching/set_up.md says how to build it and what to start it with.
FROM python:3.12-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends bubblewrap git \
 && rm -rf /var/lib/apt/lists/*
RUN python -m pip install --no-cache-dir uv
COPY . /course
WORKDIR /course
RUN uv venv /opt/course/.venv \
 && uv pip install --no-cache --python /opt/course/.venv/bin/python --torch-backend cpu \
    --editable '.[grade]' --constraints constraints.txt
ENV PATH=/opt/course/.venv/bin:$PATH
# An ordinary user, for whom bubblewrap makes namespaces of its own.
RUN useradd --create-home grader && chown -R grader /course
USER grader
RUN git config --global --add safe.directory /course
CMD ["bash"]
